/** A server as the host of the page: questions go out as JSON, and come back as JSON. */

/** @param {Example[]} examples @returns {Host} */
function server(examples) {
  return {
    examples,
    ask: async (kind, question) => (await post(kind, question)).json(),
    page: async (question) => (await post("page", question)).text(),
  };
}

/** @param {string} kind @param {object} question */
async function post(kind, question) {
  let reply;
  try {
    reply = await fetch(`api/${kind}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question),
    });
  } catch {
    throw new Error("The server does not answer; is it still running?");
  }
  if (reply.ok) return reply;
  const said = await reply.json().catch(() => ({}));
  throw new Error(plainly(said.error ?? `the server answered with ${reply.status}.`));
}

/** @type {Record<string, string>} What the page calls the fields of a question. */
const FIELDS = { text: "the text", one: "the text", other: "the other sentence", word: "the word" };

/**
 * An error of the API in the words of the page: without the names of functions and fields.
 * @param {string} error
 */
function plainly(error) {
  const told = error
    .replace(/^\w+: /, "")
    .replace(/^(text|one|other|word)(?= (is|has) )/, (name) => FIELDS[name]);
  return told.charAt(0).toUpperCase() + told.slice(1);
}
