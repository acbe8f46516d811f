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
  throw new Error(said.error ?? `The server answered with ${reply.status}.`);
}
