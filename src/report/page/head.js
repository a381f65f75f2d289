// ---- the top of the page

function head() {
  const main = document.getElementById("page");
  main.replaceChildren(el("h1", {}, page.title), el("nav", {}));
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
