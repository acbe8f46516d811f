/** Asking the server: the reply, or an error that says in one sentence why there is none. */

const UNREACHED = "The server does not answer; is it still running?";

/**
 * @param {string} name of the question, such as "view"
 * @param {object} question
 * @param {AbortSignal} [signal] when it is aborted, the server stops working on the answer
 * @returns {Promise<Response>}
 */
export async function post(name, question, signal) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(`api/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question),
      signal,
    });
  } catch (error) {
    throw signal?.aborted ? error : new Error(UNREACHED);
  }
  if (!response.ok) throw new Error(await reason(response));
  return response;
}

/**
 * @param {string} name
 * @param {object} question
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(name, question, signal) {
  return (await post(name, question, signal)).json();
}

/** @param {Response} response */
async function reason(response) {
  try {
    return String((await response.json()).error);
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim();
  }
}
