"use strict";
// A live kernel behind the page: asked by messages to the page around it, which an invisible widget relays.
((viewer) => {
  const PATIENCE = 20000;

  function kernelOf(greeted, signal) {
    const waiting = new Map();
    let number = 0,
      live = false;

    function ask(question) {
      // a promise of the answer
      number += 1;
      const id = number;
      return new Promise((done, failed) => {
        const late = setTimeout(() => {
          waiting.delete(id);
          failed(new Error("the kernel gave no answer"));
        }, PATIENCE);
        waiting.set(id, { done, failed, late });
        parent.postMessage({ id, ...question }, "*");
      });
    }

    function heard({ source, data }) {
      if (source !== parent || data === null || typeof data !== "object") return;
      if (data.hello) {
        live = true;
        greeted(data);
      }
      const asked = waiting.get(data.id);
      if (!asked) return;
      waiting.delete(data.id);
      clearTimeout(asked.late);
      if (data.error) asked.failed(new Error(String(data.error)));
      else asked.done(data);
    }

    if (parent !== window) {
      addEventListener("message", heard, { signal });
      parent.postMessage({ ask: "hello" }, "*");
    }
    return {
      ask,
      tell: (said) => {
        if (live) parent.postMessage(said, "*");
      },
      get live() {
        return live;
      },
    };
  }

  Object.assign(viewer, { kernelOf });
})(MasLabRollouts);
