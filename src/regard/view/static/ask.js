/**
 * The one channel to whoever holds the model: `ask(kind, arguments)` gives a promise of the reply.
 *
 * A host with a function `ask` (a server's page) answers itself; a notebook's widget model is asked
 * by messages `{id, kind, arguments}` and answers `{id, reply}` or `{id, error}`; a saved file has
 * nobody to ask.
 */

/**
 * @typedef {object} Model
 * @property {(name: string) => any} get "payload", "live", "state"
 * @property {(kind: string, argument: object) => Promise<any>} [ask]
 * @property {(message: object) => void} [send]
 * @property {(event: string, listener: (...given: any[]) => void) => void} [on]
 * @property {(event: string, listener: (...given: any[]) => void) => void} [off]
 * @property {(name: string, value: any) => void} [set]
 * @property {() => void} [save_changes]
 */

/** @typedef {(kind: string, argument: object) => Promise<any>} Ask */

let numbered = 0;

/**
 * @param {Model} model
 * @returns {{ask: Ask | null, close: () => void}}
 */
export function channel(model) {
  if (typeof model.ask === "function") {
    return { ask: model.ask.bind(model), close: () => {} };
  }
  const { send, on } = model;
  if (typeof send !== "function" || typeof on !== "function") {
    return { ask: null, close: () => {} };
  }
  /** @type {Map<string, {resolve: (reply: any) => void, reject: (error: Error) => void}>} */
  const waiting = new Map();
  // Two viewers may share one model, so the name of a question is this viewer's own.
  const own = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
  /** @param {{id?: string, reply?: any, error?: string}} message */
  const heard = (message) => {
    const asked = message?.id === undefined ? undefined : waiting.get(message.id);
    if (!asked || message.id === undefined) return;
    waiting.delete(message.id);
    if (message.error === undefined) asked.resolve(message.reply);
    else asked.reject(new Error(message.error));
  };
  on.call(model, "msg:custom", heard);
  return {
    ask: (kind, argument) =>
      new Promise((resolve, reject) => {
        numbered += 1;
        const id = `${own}-${numbered}`;
        waiting.set(id, { resolve, reject });
        send.call(model, { id, kind, arguments: argument });
      }),
    close: () => model.off?.("msg:custom", heard),
  };
}
