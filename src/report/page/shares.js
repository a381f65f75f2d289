// ---- where the step goes

const PARTS = [
  ["compute", "computing", "#4e79a7"], ["collectives", "collectives inside stages", "#d9534f"],
  ["switching", "waiting for parameters and gradients", "#9c755f"], ["sends", "sends between stages", "#f28e2b"],
  ["pipeline", "waiting for other stages", "#e0b93b"], ["imbalance", "waiting for other ranks", IDLE_COLOR]
];

// A bar for each row, made of its parts one behind the other, as shares of the step. columns: further columns of a
// part's source, from its field and its ends. Returns the figure and a renderer for each part.
function shareBars(into, text, height, names, rows, parts, columns) {
  const figure = chart(into, text, {
    x_range: new Bokeh.Range1d({start: 0, end: 1}),
    y_range: new Bokeh.Range1d({start: rows.length, end: 0}),
    height
  });
  const middles = rows.map((_, r) => r + 0.5);
  figure.xaxes[0].formatter = new Bokeh.NumeralTickFormatter({format: "0 %"});
  figure.yaxes[0].ticker = new Bokeh.FixedTicker({ticks: middles, minor_ticks: []});
  figure.yaxes[0].major_label_overrides = new Map(names.map((name, r) => [r + 0.5, name]));
  figure.ygrids[0].grid_line_color = null;
  const before = rows.map(() => 0);
  const renderers = parts.map(([field, words, color]) => {
    const left = [...before], right = rows.map((row, r) => (before[r] += row[field]));
    const source = new Bokeh.ColumnDataSource({
      data: {
        left,
        right,
        y: middles,
        what: rows.map(() => words),
        share: rows.map((row) => percent(row[field])),
        ...columns(field, left, right)
      }
    });
    return figure.hbar({
      y: {field: "y"},
      height: 0.8,
      left: {field: "left"},
      right: {field: "right"},
      source,
      fill_color: color,
      line_color: null
    });
  });
  return {figure, renderers};
}

// One bar for the predicted step and one for the measured one.
function partsPlot(into, parts) {
  const words = parts.map((one) => (one.measured ? "measured" : "predicted"));
  const each = parts.map(
      (one, p) => `${words[p]}: ` + PARTS.map(([field, text]) => `${text} ${percent(one[field])}`).join(", "));
  const {figure, renderers} = shareBars(
      into, "shares of the step: " + each.join("; "), 50 + 38 * parts.length, words, parts, PARTS,
      (field, left, right) => ({
        middle: left.map((from, p) => (from + right[p]) / 2),
        label: parts.map((one) => (one[field] > (narrow ? 0.2 : 0.05) ? percent(one[field]) : ""))
      }));
  PARTS.forEach(([field], p) => {
    figure.text({field: "middle"}, {field: "y"}, {field: "label"}, {
      source: renderers[p].data_source,
      text_align: "center",
      text_baseline: "middle",
      text_font_size: "12px",
      text_color: field === "imbalance"             ? COLORS.ink :
          field === "pipeline" || field === "sends" ? "#1c2430" :
                                                      "white"
    });
  });
  hover(figure, renderers, ["<b>@what</b> @share"]);
}

function stepParts(node) {
  const runs = page.runs.filter((run) => run.parts.length);
  if (!runs.length) return;
  node.append(el("div", {class: "keys"}, PARTS.map(([, text, color]) => keyOf(color, text))));
  for (const run of runs) {
    title(node, run);
    partsPlot(node.appendChild(el("div", {class: "parts"})), run.parts);
    for (const one of run.parts)
      node.append(
          el("p", {class: "small"},
             `${one.measured ? "Measured" : "Predicted"}: rank ${one.longest_rank} computes longest, ${
                 percent(one.longest)} of the step; the mean is ${percent(one.compute)}.`));
  }
}

function shares() {
  if (!page.runs.some((run) => run.parts.length || run.shares.length)) return;
  const node = section(
      "shares", "Where the step goes",
      "Means over the ranks, as shares of the step. Where a rank doesn't compute, the time belongs to what its " +
          "next task waits for: parameters of its strategy, sends or other stages of its pipeline, or other ranks " +
          "that are still busy.");
  stepParts(node);
  const runs = page.runs.filter((run) => run.shares.length);
  if (!runs.length) return;
  node.append(el("h3", {}, "By rank, predicted: computing only, both at once, transferring only, idle"));
  const parts = [
    ["compute", "computing", "#4e79a7"], ["overlap", "both at once", "#8e6bb0"],
    ["communication", "transferring", "#f28e2b"], ["idle", "idle", IDLE_COLOR]
  ];
  node.append(el("div", {class: "keys"}, parts.map(([, text, color]) => keyOf(color, text))));
  for (const run of runs) {
    title(node, run);
    const rows = run.shares.slice(0, 64), number = rows.length;
    const names = rows.map((row) => rankWord(row.ranks, row.count));
    const {figure, renderers} = shareBars(
        node, "predicted shares of the step by rank",
        Math.round(60 + number * Math.max(13, Math.min(26, 600 / number))), names, rows, parts,
        () => ({ranks: names}));
    hover(figure, renderers, ["<b>@what</b> @share", "@ranks"]);
    if (run.shares.length > 64)
      node.append(el("p", {class: "small"}, `The first 64 of ${run.shares.length} groups of ranks.`));
  }
}
