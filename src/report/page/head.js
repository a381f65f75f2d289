// ---- the top of the page

function head() {
  const main = document.getElementById("page");
  main.replaceChildren(el("h1", {}, page.title), el("nav", {}));
  if (page.reload_seconds > 0) main.append(followRun());
  for (const run of page.runs) {
    if (several) main.append(el("h3", {}, run.name));
    main.append(
        el("div", {class: "facts"}, run.facts.map(([name, value]) => el("span", {}, name + " ", el("b", {}, value)))));
    if (run.headline.length)
      main.append(
          el("div", {class: "headline"}, el("b", {}, run.headline[0]),
             run.headline.slice(1).map((sentence) => el("span", {}, sentence))));
    for (const note of run.notes) main.append(el("p", {class: "note"}, note));
  }
  if (!several) {
    main.append(
        el("div", {class: "tiles"},
           page.runs[0].tiles.map(
               ([name, value]) => el("div", {class: "tile"}, el("b", {}, value), el("span", {}, name)))));
    return;
  }
  const names = [...new Set(page.runs.flatMap((run) => run.tiles.map(([name]) => name)))];
  const rows = names.map(
      (name) => [name, ...page.runs.map((run) => (run.tiles.find((tile) => tile[0] === name) || ["", "\u2013"])[1])]);
  main.append(el("section", {}, el("h2", {}, "Side by side"), table(["", ...page.runs.map((run) => run.name)], rows)));
}

// Loads the page again now and then, but not while it is used. Returns a line that says so, with a button to stop it.
function followRun() {
  const kQuiet = 30e3;  // milliseconds without a touch
  let touched = -kQuiet, paused = false;
  for (const event of ["pointerdown", "keydown", "wheel", "input"])
    window.addEventListener(event, () => (touched = performance.now()), {passive: true});
  setInterval(() => {
    if (paused || document.hidden || performance.now() - touched < kQuiet) return;
    history.replaceState({scroll: window.scrollY}, "");
    location.reload();
  }, 1e3 * Math.max(2, page.reload_seconds));
  history.scrollRestoration = "manual";
  Promise.resolve().then(() => Promise.all(views)).then(() => {
    if (history.state && history.state.scroll) window.scrollTo(0, history.state.scroll);
  });
  const button =
      el("button", {
        class: "key",
        "aria-pressed": "false",
        onclick: () => {
          paused = !paused;
          button.textContent = paused ? "reload again" : "stop reloading";
          button.setAttribute("aria-pressed", String(paused));
        }
      },
         "stop reloading");
  return el("p", {class: "live"}, "The run goes on, and this page reloads with it unless you use it. ", button);
}
