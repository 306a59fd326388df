// Relays JSON between a page in a sandboxed frame and the kernel, which answers; both carry the frame's name. Knows
// neither what is asked nor what is answered.
function initialize({ model }) {
  const [name] = model.get("_dom_classes");
  const waiting = new Map();
  let number = 0;
  const frames = () => [...document.querySelectorAll("iframe")].filter((frame) => frame.name === name);

  function ask(source, question) {
    number += 1;
    waiting.set(number, { source, id: question.id });
    model.send({ ...question, id: number });
  }

  function received({ source, data }) {
    if (data === null || typeof data !== "object" || typeof data.ask !== "string") return;
    if (frames().some((frame) => frame.contentWindow === source)) ask(source, data);
  }

  function answered(answer) {
    const asker = waiting.get(answer.id);
    if (!asker) return;
    waiting.delete(answer.id);
    asker.source.postMessage({ ...answer, id: asker.id }, "*"); // a sandboxed frame has no origin to name
  }

  window.addEventListener("message", received);
  model.on("msg:custom", answered);
  for (const frame of frames()) ask(frame.contentWindow, { ask: "hello" });
  return () => window.removeEventListener("message", received);
}

function render({ el }) {
  el.style.display = "none";
}

export default { initialize, render };
