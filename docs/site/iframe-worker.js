// A page opened from disk may not start a worker, so the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      this.ready = new Promise((resolve) => {
        inside.postMessage = (data) => this.receive(data);
        inside.importScripts = () => Promise.resolve();
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => resolve(inside);
        inside.document.body.append(script);
      });
    }
    receive(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      this.ready.then((inside) =>
        inside.dispatchEvent(new inside.MessageEvent("message", { data })),
      );
    }
    terminate() {}
  };
}
