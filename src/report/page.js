"use strict";
// Draws the page from the data in #data (report/page.hpp) with BokehJS. Texts of the data are inserted as text, never
// as markup.

const page = JSON.parse(document.getElementById("data").textContent);
const KIND_COLORS = [
  "#4e79a7", "#3f8f55", "#9ccc8f", "#d9534f", "#f28e2b", "#f7c28b", "#8e6bb0", "#9c755f", "#499894", "#e0b93b",
  "#e3e6ea", "#bab0ac"
];
// Per kind, an index into LANES: compute; activations and gradients between stages; to home; parameters; collectives.
const KIND_LANES = [0, 0, 0, 5, 1, 2, 4, 3, 3, 0, 0, 0];
const LANES = [[0.07, 0.58], [0.61, 0.69], [0.70, 0.78], [0.79, 0.87], [0.88, 0.96], [0.36, 0.58]];
const CLASS_COLORS = ["#2f5d8a", "#5b8fbf", "#a6c8e4", "#7a9e9f", "#8e6bb0", "#9c755f", "#f28e2b", "#d4d4d8"];
const RUN_COLORS = ["#2f5d8a", "#d9772b", "#3f8f55", "#b0413e", "#8e6bb0", "#499894", "#9c755f", "#5b6675"];
const views = [];

// ---- helpers

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style")
      Object.assign(node.style, value);
    else if (name.startsWith("on"))
      node.addEventListener(name.slice(2), value);
    else
      node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function digits(number) {
  const size = Math.abs(number);
  return size >= 100 ? number.toFixed(0) : size >= 10 ? number.toFixed(1) : number.toFixed(2);
}
function bytes(number) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (Math.abs(number) >= size) return digits(number / size) + " " + unit;
  return number + " B";
}
function seconds(number) {
  if (number === null || number === undefined) return "\u2013";
  if (number >= 1) return digits(number) + " s";
  if (number >= 1e-3) return digits(number * 1e3) + " ms";
  return digits(number * 1e6) + " \u00b5s";
}
// Two points of time in one unit, with as many digits as tell them apart.
function between(begin, end) {
  const [unit, factor] = end >= 1 ? ["s", 1] : end >= 1e-3 ? ["ms", 1e3] : ["\u00b5s", 1e6];
  const places = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10((end - begin) * factor || 1))));
  return `${(begin * factor).toFixed(places)} to ${(end * factor).toFixed(places)} ${unit}`;
}
const percent = (share) => (100 * share).toFixed(1) + " %";
const count = (number) => number.toLocaleString("en").replaceAll(",", "\u2009");
function byteUnit(most) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (most >= size) return [unit, size];
  return ["B", 1];
}
function timeUnit(most) {
  return most >= 1 ? ["seconds", 1] : most >= 1e-3 ? ["milliseconds", 1e3] : ["microseconds", 1e6];
}
const several = page.runs.length > 1;
const rankWord = (ranks, number) => (number > 1 ? `ranks ${short(ranks)} (${number})` : `rank ${ranks}`);
const short = (text) => (text.length > 26 ? text.slice(0, 24) + "\u2026" : text);
const last = (list) => list[list.length - 1];

// Makes the range zoom and pan together with the others of the list.
function linked(range, others) {
  const follow = (from, to) => from.change.connect(() => {
    if (to.start !== from.start || to.end !== from.end) to.setv({start: from.start, end: from.end});
  });
  for (const other of others) {
    follow(range, other);
    follow(other, range);
  }
  others.push(range);
  return range;
}

// Adds a chart to `into`. The wheel zooms only with Ctrl held, so that the page still scrolls.
function chart(into, options, zoom = "x") {
  const wheel = new Bokeh.WheelZoomTool({dimensions: zoom === "x" ? "width" : "both", modifiers: {ctrl: true}});
  const pan = new Bokeh.PanTool({dimensions: zoom === "x" ? "width" : "both"});
  const box = new Bokeh.BoxZoomTool({dimensions: zoom === "x" ? "width" : "both"});
  const figure = Bokeh.Plotting.figure({
    sizing_mode: "stretch_width",
    height: 260,
    tools: [pan, box, wheel, new Bokeh.ResetTool()],
    toolbar_location: "right",
    ...options
  });
  figure.toolbar.active_drag = box;
  figure.toolbar.active_scroll = wheel;
  figure.toolbar.logo = null;
  figure.toolbar.autohide = true;
  figure.outline_line_color = "#dde2e8";
  for (const axis of [...figure.xaxes, ...figure.yaxes]) {
    axis.axis_label_text_font_style = "normal";
    axis.axis_label_text_color = axis.major_label_text_color = "#5b6675";
    axis.axis_line_color = axis.major_tick_line_color = "#b8c0ca";
    axis.minor_tick_line_color = null;
  }
  for (const grid of [...figure.xgrids, ...figure.ygrids]) grid.grid_line_color = "#edf0f3";
  into.append(el("div", {}));
  views.push(Bokeh.Plotting.show(figure, last([...into.children])));
  return figure;
}

const tooltip = (rows) =>
    `<div style="font:12px system-ui,sans-serif;color:#1c2430;max-width:440px">${rows.join("<br>")}</div>`;
function hover(figure, renderers, rows, more = {}) {
  figure.add_tools(new Bokeh.HoverTool({renderers, tooltips: tooltip(rows), ...more}));
}
function keyOf(color, text, click) {
  const key =
      el(click ? "button" : "span", {class: click ? "key" : "key plain"}, el("i", {style: {background: color}}), text);
  if (click) key.addEventListener("click", () => key.classList.toggle("off", !click()));
  return key;
}
function section(id, title, text) {
  const node = el("section", {id}, el("h2", {}, title), el("p", {}, text));
  document.getElementById("page").append(node);
  document.querySelector("nav").append(el("a", {href: "#" + id}, title));
  return node;
}
function line(at, dimension, color, dash) {
  return new Bokeh.Span({location: at, dimension, line_color: color, line_width: 1.5, line_dash: dash || "solid"});
}
function table(head, rows) {
  return el(
      "div", {class: "scroll"},
      el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", {}, text)))),
         el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))));
}
function title(into, run) {
  if (several) into.append(el("h3", {}, run.name));
}

// ---- sections

function head() {
  const main = document.getElementById("page");
  main.replaceChildren(el("h1", {}, page.title), el("nav", {}));
  for (const run of page.runs) {
    if (several) main.append(el("h3", {}, run.name));
    main.append(
        el("div", {class: "facts"}, run.facts.map(([name, value]) => el("span", {}, name + " ", el("b", {}, value)))));
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

function steps() {
  const runs = page.runs.filter((run) => run.steps);
  if (!runs.length) return;
  const node = section("steps", "Loss and throughput", "Per optimizer step.");
  const grid = node.appendChild(el("div", {class: "two"}));
  const numbers = runs.flatMap((run) => run.steps.step), first = Math.min(...numbers), final = Math.max(...numbers),
        edge = Math.max(0.5, 0.02 * (final - first));
  const ranges = [];
  const draw = (into, column, label) => {
    const x_range = linked(new Bokeh.Range1d({start: first - edge, end: final + edge}), ranges);
    const figure = chart(into, {x_range, x_axis_label: "step", y_axis_label: label, height: 250});
    figure.xaxes[0].ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
    page.runs.forEach((run, r) => {
      if (!run.steps || !run.steps[column]) return;
      const source = new Bokeh.ColumnDataSource({
        data: {
          x: run.steps.step,
          y: run.steps[column].map((v) => (v === null ? NaN : v)),
          run: run.steps.step.map(() => run.name)
        }
      });
      figure.line({field: "x"}, {field: "y"}, {source, line_color: RUN_COLORS[r % 8], line_width: 2});
      const dots = figure.scatter(
          {field: "x"}, {field: "y"},
          {source, size: run.steps.step.length > 150 ? 0 : 5, fill_color: RUN_COLORS[r % 8], line_color: null});
      hover(figure, [dots], ["step @x: <b>@y</b>", ...(several ? ["@run"] : [])], {mode: "mouse"});
    });
    return figure;
  };
  const cell = () => grid.appendChild(el("div", {}));
  draw(cell(), "loss", "loss (natural log)");
  draw(cell(), "tokens_per_second", "tokens per second");
  if (several)
    node.append(el("div", {class: "keys"}, runs.map((run) => keyOf(RUN_COLORS[page.runs.indexOf(run) % 8], run.name))));
  const others = [...new Set(runs.flatMap((run) => Object.keys(run.steps)))].filter(
      (name) => !["step", "loss", "tokens_per_second"].includes(name));
  if (!others.length) return;
  const place = el("div", {});
  const choice =
      el("select", {"aria-label": "another figure", onchange: () => show()},
         others.map((name) => el("option", {value: name}, name.replaceAll("_", " "))));
  const show = () => {
    place.replaceChildren();
    draw(place, choice.value, choice.value.replaceAll("_", " "));
  };
  if (others.includes("seconds")) choice.value = "seconds";
  node.append(el("div", {class: "small"}, "Another figure: ", choice), place);
  show();
}

// A function that describes tasks by their names (ir::name_of): "micro-batch 1 of 8, layers 0-15, replica 1 of strategy
// 1,4,1". Where the plan is unknown: "micro-batch 1 of 8, stage 1, replica 1, phase 1".
function describer({names, phases}) {
  const ofReplica = (name) => name.match(/phase (\d+) replica (\d+) stage (\d+) (?:\w+ )?mb(\d+)/);
  const microBatches = new Map();
  for (const name of names) {
    const found = ofReplica(name);
    if (!found) continue;
    const key = found[1] + " " + found[2];
    microBatches.set(key, Math.max(microBatches.get(key) || 0, Number(found[4]) + 1));
  }
  const from1 = (text) => Number(text) + 1;
  const ofPhase = (phase) => phases[phase] ? `strategy ${phases[phase].strategy}` : `phase ${from1(phase)}`;
  const place = (phase, replica, stage) => {
    const label = phases[phase];
    if (!label) return `stage ${from1(stage)}, replica ${from1(replica)}, phase ${from1(phase)}`;
    const layers = label.layers[label.group[replica]][stage];
    return `layers ${layers}, replica ${from1(replica)} of strategy ${label.strategy}`;
  };
  return (name) => {
    const found = ofReplica(name);
    if (found)
      return `micro-batch ${from1(found[4])} of ${microBatches.get(found[1] + " " + found[2])}, ` +
          place(found[1], found[2], found[3]);
    const unit = name.match(/(?:phase (\d+) )?u(\d+)(?: r(\d+))?$/);
    if (!unit) return name;
    const round = unit[3] === undefined ? "" : `, round ${from1(unit[3])}`,
          phase = unit[1] === undefined ? "" : `, ${ofPhase(unit[1])}`;
    return `unit ${unit[2]}${round}${phase}`;
  };
}

// Columns for the spans of one kind.
function spanColumns(timeline, kind, unit, describe) {
  const columns = {left: [], right: [], top: [], bottom: [], name: [], ranks: [], from: [], length: [], what: []};
  const {track, begin, end, name} = timeline.spans;
  const [top, bottom] = LANES[KIND_LANES[kind]];
  for (let i = 0; i < track.length; ++i) {
    if (timeline.spans.kind[i] !== kind) continue;
    const of = timeline.tracks[track[i]];
    columns.left.push(begin[i] * unit);
    columns.right.push(end[i] * unit);
    columns.top.push(track[i] + top);
    columns.bottom.push(track[i] + bottom);
    columns.name.push((kind === 10 ? "before " : "") + describe(timeline.names[name[i]]));
    columns.ranks.push(
        rankWord(of.ranks, of.count) + (of.count > 1 ? `, times of rank ${of.shown}` : "") +
        (of.measured ? ", measured" : ", predicted"));
    columns.from.push(between(begin[i], end[i]));
    columns.length.push(seconds(end[i] - begin[i]));
    columns.what.push(page.kinds[kind]);
  }
  return columns;
}

function timelinePlot(into, timeline, most, ranges) {
  const both = timeline.predicted_seconds !== null && timeline.measured_seconds !== null;
  const [unitName, unit] = timeUnit(most);
  const number = timeline.tracks.length, rowHeight = Math.max(15, Math.min(40, 1600 / number));
  const x_range = linked(new Bokeh.Range1d({start: -0.005 * most * unit, end: 1.01 * most * unit}), ranges);
  const y_range = new Bokeh.Range1d({start: number, end: 0});
  const figure = chart(into, {
    x_range,
    y_range,
    height: Math.round(80 + number * rowHeight),
    x_axis_label: `${unitName} from the step's start`
  });
  const band = (measured, color) => {
    const at =
        timeline.tracks.map((track, t) => [track.measured, t]).filter(([is]) => is === measured).map(([, t]) => t);
    figure.hbar({
      y: at.map((t) => t + 0.5),
      height: 0.97,
      left: -most * unit,
      right: 3 * most * unit,
      fill_color: color,
      line_color: null
    });
  };
  band(false, "#fafbfc");
  band(true, "#fdf6ea");
  const label = (track) =>
      rankWord(track.ranks, track.count) + (both ? (track.measured ? " measured" : " predicted") : "");
  const axis = figure.yaxes[0];
  axis.ticker = new Bokeh.FixedTicker({ticks: timeline.tracks.map((_, t) => t + 0.5), minor_ticks: []});
  axis.major_label_overrides = new Map(timeline.tracks.map((track, t) => [t + 0.5, label(track)]));
  axis.major_label_text_font_size = rowHeight < 20 ? "10px" : "12px";
  figure.ygrids[0].grid_line_color = null;
  const describe = describer(timeline);
  // Borders would hide thin spans, or widen them until many look like one.
  const renderers = [], keys = [], bordered = new Set(timeline.spans.track.length < 4000 ? [0, 1, 2, 9] : []);
  const order = [10, 0, 1, 2, 9, 11, 3, 4, 5, 6, 7, 8];
  for (const kind of order) {
    if (!timeline.spans.kind.includes(kind)) continue;
    const source = new Bokeh.ColumnDataSource({data: spanColumns(timeline, kind, unit, describe)});
    const quads = figure.quad({
      left: {field: "left"},
      right: {field: "right"},
      top: {field: "top"},
      bottom: {field: "bottom"},
      source,
      fill_color: KIND_COLORS[kind],
      line_color: bordered.has(kind) ? "white" : null,
      line_width: 0.6,
      hover_line_color: "#111",
      hover_line_width: 1.5
    });
    renderers.push(quads);
    keys.push(keyOf(KIND_COLORS[kind], page.kinds[kind], () => (quads.visible = !quads.visible)));
  }
  hover(figure, renderers, ["<b>@what</b> @length", "@name", "@ranks", "@from"], {point_policy: "follow_mouse"});
  if (timeline.predicted_seconds !== null)
    figure.add_layout(line(timeline.predicted_seconds * unit, "height", "#2f5d8a", "dashed"));
  if (timeline.measured_seconds !== null)
    figure.add_layout(line(timeline.measured_seconds * unit, "height", "#d9772b", "dashed"));
  into.prepend(el("div", {class: "keys"}, keys));
}

function timelines() {
  const runs = page.runs.filter((run) => run.timelines.length);
  if (!runs.length) return;
  const node = section(
      "timeline", "Timeline",
      "One row per rank. The thick bar shows what it computes, with collectives inside a stage in the lower half. " +
          "The thin bars below show " +
          "what it sends: activations and gradients between stages, gradients to home, and parameters. " +
          "Hover over a span for details. Drag to zoom into a time range, zoom around the mouse with Ctrl and the " +
          "wheel, pan and reset with the toolbar at the right. Click a colour to hide or show its spans.");
  const all = runs.flatMap((run) => run.timelines),
        most = Math.max(...all.map((t) => Math.max(t.predicted_seconds || 0, t.measured_seconds || 0)), 1e-9),
        ranges = [];
  for (const run of runs) {
    for (const timeline of run.timelines) {
      const ends = [];
      if (timeline.predicted_seconds !== null)
        ends.push(`predicted ${seconds(timeline.predicted_seconds)} (blue line)`);
      if (timeline.measured_seconds !== null) ends.push(`measured ${seconds(timeline.measured_seconds)} (orange line)`);
      node.append(el("h3", {}, `${several ? run.name + ", " : ""}step ${timeline.step}: ${ends.join(", ")}`));
      if (timeline.folded) node.append(el("p", {class: "small"}, timeline.folded));
      if (timeline.merged)
        node.append(el(
            "p", {class: "small"}, `${count(timeline.merged)} short spans are merged with a neighbour of their kind.`));
      timelinePlot(node.appendChild(el("div", {class: "timeline"})), timeline, most, ranges);
    }
  }
}

function shares() {
  const runs = page.runs.filter((run) => run.shares.length);
  if (!runs.length) return;
  const node = section(
      "shares", "How ranks spend the step",
      "Predicted shares of the step: computing only, computing and transferring at once, transferring only, idle.");
  const parts = [
    ["compute", "computing", "#4e79a7"], ["overlap", "both at once", "#8e6bb0"],
    ["communication", "transferring", "#f28e2b"], ["idle", "idle", "#e3e6ea"]
  ];
  node.append(el("div", {class: "keys"}, parts.map(([, text, color]) => keyOf(color, text))));
  for (const run of runs) {
    title(node, run);
    const rows = run.shares.slice(0, 64), number = rows.length;
    const figure = chart(node, {
      x_range: new Bokeh.Range1d({start: 0, end: 1}),
      y_range: new Bokeh.Range1d({start: number, end: 0}),
      height: Math.round(60 + number * Math.max(13, Math.min(30, 1000 / number)))
    });
    figure.xaxes[0].formatter = new Bokeh.NumeralTickFormatter({format: "0 %"});
    figure.yaxes[0].ticker = new Bokeh.FixedTicker({ticks: rows.map((_, r) => r + 0.5), minor_ticks: []});
    figure.yaxes[0].major_label_overrides = new Map(rows.map((row, r) => [r + 0.5, rankWord(row.ranks, row.count)]));
    figure.ygrids[0].grid_line_color = null;
    const before = rows.map(() => 0), renderers = [];
    for (const [field, text, color] of parts) {
      const left = [...before], right = rows.map((row, r) => (before[r] += row[field]));
      const source = new Bokeh.ColumnDataSource({
        data: {
          left,
          right,
          y: rows.map((_, r) => r + 0.5),
          what: rows.map(() => text),
          share: rows.map((row) => percent(row[field])),
          ranks: rows.map((row) => rankWord(row.ranks, row.count))
        }
      });
      renderers.push(figure.hbar({
        y: {field: "y"},
        height: 0.8,
        left: {field: "left"},
        right: {field: "right"},
        source,
        fill_color: color,
        line_color: null
      }));
    }
    hover(figure, renderers, ["<b>@what</b> @share", "@ranks"]);
    if (run.shares.length > 64)
      node.append(el("p", {class: "small"}, `The first 64 of ${run.shares.length} groups of ranks.`));
  }
}

function memoryCurve(into, memory, curve, end) {
  const highest =
      Math.max(...curve.seconds.map((_, i) => curve.bytes.reduce((sum, column) => sum + column[i], 0)), memory.budget);
  const [unitName, unit] = byteUnit(highest), [timeName, time] = timeUnit(end);
  const figure = chart(into, {
    x_range: new Bokeh.Range1d({start: 0, end: end * time}),
    y_range: new Bokeh.Range1d({start: 0, end: (1.06 * highest) / unit}),
    height: 320,
    x_axis_label: `${timeName} from the step's start`,
    y_axis_label: unitName
  });
  const x = [], below = [];
  curve.seconds.forEach(
      (at, i) => x.push(at * time, (i + 1 < curve.seconds.length ? curve.seconds[i + 1] : Math.max(end, at)) * time));
  x.forEach(() => below.push(0));
  const data = {x, total: [], text: []}, keys = [];
  memory.classes.forEach((name, c) => {
    if (!curve.bytes[c].some((value) => value > 0)) return;
    const y1 = [...below];
    curve.bytes[c].forEach((value, i) => {
      below[2 * i] += value / unit;
      below[2 * i + 1] += value / unit;
    });
    figure.varea({x, y1, y2: [...below], fill_color: CLASS_COLORS[c], fill_alpha: 0.9});
    keys.push(keyOf(CLASS_COLORS[c], name));
  });
  curve.seconds.forEach((at, i) => {
    const parts = memory.classes.map((name, c) => [name, curve.bytes[c][i]]).filter(([, value]) => value > 0);
    const text = `at ${seconds(at)}: ${bytes(parts.reduce((sum, [, value]) => sum + value, 0))} = ` +
        parts.map(([name, value]) => `${name} ${bytes(value)}`).join(", ");
    data.text.push(text, text);
  });
  data.total = below;
  const total = figure.line(
      {field: "x"}, {field: "total"},
      {source: new Bokeh.ColumnDataSource({data}), line_color: "#1c2430", line_width: 1});
  hover(figure, [total], ["@text"], {mode: "vline", line_policy: "prev"});
  if (memory.budget > 0) figure.add_layout(line(memory.budget / unit, "width", "#b3261e", "dashed"));
  if (memory.budget > 0) keys.push(keyOf("#b3261e", `${memory.limit_name}, ${bytes(memory.budget)}`));
  into.prepend(el("div", {class: "keys"}, keys));
}

function peaks(into, memory) {
  const ranks = Math.max(memory.predicted_peak.length, memory.measured_peak.length);
  if (!ranks) return;
  const highest = Math.max(...memory.predicted_peak, ...memory.measured_peak, memory.budget),
        [unitName, unit] = byteUnit(highest);
  const figure = chart(into, {
    x_range: new Bokeh.Range1d({start: -0.6, end: ranks - 0.4}),
    y_range: new Bokeh.Range1d({start: 0, end: (1.06 * highest) / unit}),
    height: 220,
    x_axis_label: "rank",
    y_axis_label: `peak, ${unitName}`
  });
  figure.xaxes[0].ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
  const columns = (values) => new Bokeh.ColumnDataSource(
      {data: {x: values.map((_, r) => r), y: values.map((v) => v / unit), text: values.map(bytes)}});
  const keys = [];
  const bars = (values, color, word) => {
    const drawn = figure.vbar({
      x: {field: "x"},
      top: {field: "y"},
      bottom: 0,
      width: ranks > 64 ? 1 : 0.7,
      source: columns(values),
      fill_color: color,
      line_color: null
    });
    hover(figure, [drawn], [`rank @x: <b>@text</b> ${word}`]);
  };
  if (memory.measured_peak.length) {
    bars(memory.measured_peak, "#f0b46c", "measured");
    keys.push(keyOf("#f0b46c", "measured, highest of all steps"));
  } else {
    bars(memory.predicted_peak, "#a6c8e4", "predicted");
    keys.push(keyOf("#a6c8e4", "predicted"));
  }
  if (memory.measured_peak.length && memory.predicted_peak.length) {
    const marks = figure.rect({
      x: {field: "x"},
      y: {field: "y"},
      width: 0.9,
      height: 0.012 * highest / unit,
      source: columns(memory.predicted_peak),
      fill_color: "#2f5d8a",
      line_color: null
    });
    hover(figure, [marks], ["rank @x: <b>@text</b> predicted"]);
    keys.push(keyOf("#2f5d8a", "predicted"));
  }
  if (memory.budget > 0) {
    figure.add_layout(line(memory.budget / unit, "width", "#b3261e", "dashed"));
    keys.push(keyOf("#b3261e", `${memory.limit_name}, ${bytes(memory.budget)}`));
  }
  into.prepend(el("div", {class: "keys"}, keys));
}

function memory() {
  const runs = page.runs.filter((run) => run.memory);
  if (!runs.length) return;
  const node = section(
      "memory", "Memory",
      "Memory of a rank over the step, by class, as the peak during each task. Below: the peak of every rank.");
  for (const run of runs) {
    title(node, run);
    const {curves} = run.memory, place = el("div", {}), timeline = run.timelines[0];
    const end = Math.max(
        timeline ? timeline.predicted_seconds || timeline.measured_seconds : 0,
        ...curves.map((curve) => last(curve.seconds)));
    if (curves.length) {
      const choice =
          el("select", {"aria-label": "ranks", onchange: () => show()},
             curves.map(
                 (curve, c) =>
                     el("option", {value: c}, rankWord(curve.ranks, curve.count) + (c === 0 ? ", highest peak" : ""))));
      const show = () => {
        place.replaceChildren();
        memoryCurve(place, run.memory, curves[Number(choice.value)], end);
      };
      node.append(el("div", {class: "small"}, "Shown: ", choice), place);
      show();
    }
    peaks(node.appendChild(el("div", {})), run.memory);
  }
}

function buckets() {
  const runs = page.runs.filter((run) => run.buckets.length);
  if (!runs.length) return;
  const node = section(
      "buckets", "Strategies and buckets",
      "The buckets of the step shown. Padding is the share of computed tokens that belong to no document. " +
          "Time is from the start of a bucket's first task to the end of its last; buckets may overlap.");
  for (const run of runs) {
    title(node, run);
    const measured = run.buckets.some((row) => row.measured_seconds !== null),
          predicted = run.buckets.some((row) => row.predicted_seconds !== null);
    const times = [
      [predicted, "predicted time", "predicted_seconds"], [measured, "measured time", "measured_seconds"]
    ].filter(([there]) => there);
    const rows = run.buckets.map(
        (row, b) =>
            [row.strategy,
             `${count(b + 1 < run.buckets.length ? run.buckets[b + 1].max_length + 1 : 1)}\u2013${
                 count(row.max_length)}`,
             row.ranks, row.replicas, count(row.documents), count(row.tokens), count(row.micro_batches),
             percent(row.padding_share), ...times.map(([, , field]) => seconds(row[field]))]);
    node.append(table(
        [
          "strategy (dp,tp,pp)", "document length", "ranks", "replicas", "documents", "tokens", "micro-batches",
          "padding", ...times.map(([, text]) => text)
        ],
        rows));
  }
}

function links() {
  const runs = page.runs.filter((run) => run.links.length);
  if (!runs.length) return;
  const node = section("links", "Bytes by class of link", "Bytes that all ranks send in the step, as planned.");
  const most = Math.max(...runs.flatMap((run) => run.links.flatMap((use) => [use.intra, use.inter])), 1);
  const cell = (value, color) =>
      el("span", {}, bytes(value),
         el("i", {class: "bar", style: {background: color, width: `${Math.round((160 * value) / most)}px`}}));
  for (const run of runs) {
    title(node, run);
    const sum = (field) => run.links.reduce((total, use) => total + use[field], 0);
    const rows = run.links.map((use) => [use.what, cell(use.intra, "#4e79a7"), cell(use.inter, "#d9772b")]);
    const made = table(["", "inside hosts", "between hosts"], [...rows, ["all", bytes(sum("intra")), bytes(sum("inter"))]]);
    for (const td of made.querySelectorAll("td:not(:first-child), th:not(:first-child)")) td.style.textAlign = "left";
    node.append(made);
  }
}

// A colour from pale to dark, by the share of the largest cell.
function shade(share) {
  const from = [222, 232, 243], to = [23, 55, 94];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join(",")})`;
}

function matrix(into, plan) {
  const box = into.appendChild(el("div", {class: "matrix"}, el("h3", {}, plan.title)));
  const word = plan.by_host ? "host" : "rank", most = Math.max(...plan.cells.map((cell) => cell[2]), 0);
  const bound = plan.inter_bound === null ? "" : ` (lower bound for any plan: ${bytes(plan.inter_bound)})`;
  box.append(
      el("p", {},
         plan.cells.length ? `${bytes(plan.intra)} inside hosts, ${bytes(plan.inter)} between hosts${bound}` :
                             "Nothing is sent: every rank already has what it needs."));
  if (!plan.cells.length) return;
  const ends = () => new Bokeh.Range1d({start: -0.5, end: plan.size - 0.5});
  const figure = chart(
      box, {
        x_range: ends(),
        y_range: new Bokeh.Range1d({start: plan.size - 0.5, end: -0.5}),
        sizing_mode: "fixed",
        width: 320,
        height: 300,
        x_axis_label: `to ${word}`,
        y_axis_label: `from ${word}`,
        toolbar_location: null
      },
      "both");
  figure.background_fill_color = "#fafbfc";
  for (const axis of [figure.xaxes[0], figure.yaxes[0]])
    axis.ticker = new Bokeh.AdaptiveTicker({min_interval: 1, mantissas: [1, 2, 5], num_minor_ticks: 0});
  for (const grid of [...figure.xgrids, ...figure.ygrids]) grid.grid_line_color = null;
  const source = new Bokeh.ColumnDataSource({
    data: {
      x: plan.cells.map((c) => c[1]),
      y: plan.cells.map((c) => c[0]),
      text: plan.cells.map((c) => bytes(c[2])),
      color: plan.cells.map((c) => shade(c[2] / most))
    }
  });
  const cells = figure.rect({
    x: {field: "x"},
    y: {field: "y"},
    width: 1,
    height: 1,
    source,
    fill_color: {field: "color"},
    line_color: plan.size > 24 ? null : "white"
  });
  hover(figure, [cells], [`${word} @y \u2192 ${word} @x: <b>@text</b>`]);
  box.append(
      el("div", {class: "keys"}, keyOf(shade(1), bytes(most)), keyOf(shade(0.5), bytes(Math.round(most / 2))),
         keyOf("#fafbfc", "nothing")));
}

function matrices() {
  const runs = page.runs.filter((run) => run.matrices.length);
  if (!runs.length) return;
  const node = section(
      "switches", "Switches",
      "Bytes sent between ranks: parameters to the next strategy, in order of execution, and gradients to home. " +
          "Darker is more; each matrix has its own scale.");
  for (const run of runs) {
    title(node, run);
    const grid = node.appendChild(el("div", {class: "matrices"}));
    for (const plan of run.matrices) matrix(grid, plan);
  }
}

const kLongestLabel = 44;  // characters, so that half the page is left for bars

// A plan's name, cut to kLongestLabel. Where another name has the same beginning, the label shows the first difference.
function labelOf(name, names) {
  if (name.length <= kLongestLabel) return name;
  const sharedWith = (other) => {
    let length = 0;
    while (length < other.length && other[length] === name[length]) ++length;
    return length;
  };
  const shared = Math.max(0, ...names.filter((other) => other !== name).map(sharedWith));
  if (shared < kLongestLabel - 1) return name.slice(0, kLongestLabel - 1) + "\u2026";
  const end = Math.min(name.length, shared + 22), start = end - 32;
  return name.slice(0, 9) + "\u2026" + name.slice(start, end) + (end < name.length ? "\u2026" : "");
}

function candidates() {
  const runs = page.runs.filter((run) => run.candidates.length);
  if (!runs.length) return;
  const node = section(
      "candidates", "Plan candidates",
      "Predicted time of the same step, and the highest peak memory of any rank. " +
          "Green: the plan of this job; grey: above the memory limit.");
  for (const run of runs) {
    title(node, run);
    const able = run.candidates.filter((c) => c.seconds !== null).sort((a, b) => a.seconds - b.seconds);
    const limit = run.memory ? run.memory.budget : 0;
    const color = (c) => (c.chosen ? "#3f8f55" : c.fits ? "#4e79a7" : "#c3c9d1");
    const grid = node.appendChild(el("div", {class: "two"}));
    const draw = (field, label, text, unit) => {
      const into = grid.appendChild(el("div", {})),
            names = able.map((c, i) => `${i + 1}  ${labelOf(c.name, able.map((one) => one.name))}`);
      const figure = chart(into, {
        y_range: new Bokeh.FactorRange({factors: [...names].reverse()}),
        height: 70 + 26 * able.length,
        x_axis_label: label
      });
      figure.x_range.start = 0;
      const source = new Bokeh.ColumnDataSource({
        data: {
          y: names,
          name: able.map((c) => c.name),
          right: able.map((c) => c[field] / unit),
          color: able.map(color),
          text: able.map((c) => text(c[field])),
          fits: able.map((c) => (c.fits ? "" : "above the memory limit")),
          remark: able.map((c) => c.remark)
        }
      });
      const bars = figure.hbar({
        y: {field: "y"},
        height: 0.75,
        left: 0,
        right: {field: "right"},
        source,
        fill_color: {field: "color"},
        line_color: null
      });
      hover(figure, [bars], ["<b>@name</b> @text", "@fits @remark"]);
      return figure;
    };
    const [timeName, time] = timeUnit(Math.max(...able.map((c) => c.seconds), 1e-9)),
                     [byteName, size] = byteUnit(Math.max(...able.map((c) => c.peak || 0), limit));
    if (able.length) {
      draw("seconds", `predicted ${timeName}`, seconds, 1 / time);
      const figure = draw("peak", `highest peak of any rank, ${byteName}`, bytes, size);
      if (limit > 0) figure.add_layout(line(limit / size, "height", "#b3261e", "dashed"));
    }
    if (able.some((c) => c.name.length > kLongestLabel))
      node.append(el("ol", {class: "small"}, ...able.map((c) => el("li", {}, `${c.name}: ${seconds(c.seconds)}`))));
    const unable = run.candidates.filter((c) => c.seconds === null);
    if (unable.length)
      node.append(
          el("p", {class: "small"}, "Not possible: " + unable.map((c) => `${c.name} (${c.remark})`).join("; ")));
  }
}

// ---- the whole page

function error(text) {
  document.getElementById("page").prepend(
      el("div", {class: "error"}, "This page could not be drawn completely: " + text));
  document.body.dataset.state = "failed";
}
window.addEventListener("error", (event) => error(event.message));
window.addEventListener("unhandledrejection", (event) => error(String(event.reason)));

Bokeh.set_log_level("warn");
head();
for (const draw of [steps, timelines, shares, memory, buckets, links, matrices, candidates]) draw();
document.getElementById("page").append(
    el("footer", {}, "Drawn with BokehJS (BSD 3-clause licence, in the source of this page)."));
Promise.all(views).then(() => {
  document.body.dataset.state = document.body.dataset.state || "ready";
});
