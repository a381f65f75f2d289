// ---- the timeline

// Per kind, an index into BANDS: compute; activations and gradients between stages; to home; parameters; collectives.
const KIND_BANDS = [0, 0, 0, 5, 1, 2, 4, 3, 3, 0, 0, 0];
const BANDS = [[0.12, 0.60], [0.63, 0.70], [0.72, 0.79], [0.81, 0.88], [0.90, 0.97], [0.38, 0.60]];
const COLLECTIVE = 3, WAITING = 10;
const BAND_PIXELS = 20;  // height of a strategy's band above the rows

// Columns for the spans of one kind. A span that was joined from short ones is only as high as the share of it in which
// the kind works, so that its area is its time.
function spanColumns(timeline, kind, unit, describe) {
  const columns =
      {left: [], right: [], top: [], bottom: [], name: [], ranks: [], from: [], length: [], what: [], index: []};
  const {track, begin, end, name, busy} = timeline.spans;
  const [top, bottom] = BANDS[KIND_BANDS[kind]];
  for (let i = 0; i < track.length; ++i) {
    if (timeline.spans.kind[i] !== kind) continue;
    const of = timeline.tracks[track[i]], height = (bottom - top) * busy[i];
    columns.left.push(begin[i] * unit);
    columns.right.push(end[i] * unit);
    columns.top.push(track[i] + (KIND_BANDS[kind] === 0 ? top : bottom - height));
    columns.bottom.push(track[i] + (KIND_BANDS[kind] === 0 ? top + height : bottom));
    columns.name.push((kind === WAITING ? "before " : "") + describe(timeline.names[name[i]]));
    columns.ranks.push(
        rankWord(of.ranks, of.count) + (of.count > 1 ? `, times of rank ${of.shown}` : "") +
        (of.measured ? ", measured" : ", predicted"));
    columns.from.push(between(begin[i], end[i]));
    columns.length.push(
        seconds(end[i] - begin[i]) + (busy[i] < 1 ? `, several, ${percent(busy[i])} of it working` : ""));
    columns.what.push(page.kinds[kind]);
    columns.index.push(i);
  }
  return columns;
}

// The end of every row, where nothing is left to compute.
function addLastWaits(columns, timeline, unit) {
  timeline.tracks.forEach((of, t) => {
    const end = of.measured ? timeline.measured_seconds : timeline.predicted_seconds;
    let begin = 0;
    for (let i = 0; i < timeline.spans.track.length; ++i)
      if (timeline.spans.track[i] === t && KIND_BANDS[timeline.spans.kind[i]] % 5 === 0)
        begin = Math.max(begin, timeline.spans.end[i]);
    if (!(end > begin)) return;
    columns.left.push(begin * unit);
    columns.right.push(end * unit);
    columns.top.push(t + BANDS[0][0]);
    columns.bottom.push(t + BANDS[0][1]);
    columns.name.push("until all ranks have ended the step");
    columns.ranks.push(rankWord(of.ranks, of.count) + (of.measured ? ", measured" : ", predicted"));
    columns.from.push(between(begin, end));
    columns.length.push(seconds(end - begin));
    columns.what.push(page.kinds[WAITING]);
    columns.index.push(-1);
  });
}

// When the runs of each phase begin and end, on each track and over all of them.
function phaseTimes(timeline) {
  const rows = [], over = new Map();
  const {track, begin, end, name} = timeline.spans, at = new Map();
  const widen = (map, key, fresh, i) => {
    if (!map.has(key)) map.set(key, {...fresh, begin: begin[i], end: end[i]});
    const one = map.get(key);
    one.begin = Math.min(one.begin, begin[i]);
    one.end = Math.max(one.end, end[i]);
  };
  for (let i = 0; i < track.length; ++i) {
    const text = timeline.names[name[i]];
    if (timeline.spans.kind[i] === WAITING || !text.startsWith("run ")) continue;
    const phase = phaseOf(text), measured = timeline.tracks[track[i]].measured;
    widen(at, track[i] + " " + phase, {track: track[i], phase, measured}, i);
    widen(over, measured + " " + phase, {phase, measured}, i);
  }
  rows.push(...at.values());
  return [rows, [...over.values()].sort((a, b) => a.measured - b.measured || a.begin - b.begin)];
}

// Bands that overlap lie below each other. Returns how many lie there.
function stack(bands) {
  const free = [];  // when each line is free, for predicted bands, then for measured ones
  for (const measured of [false, true]) {
    const first = free.length;
    for (const band of bands.filter((one) => one.measured === measured)) {
      let line = first;
      while (line < free.length && free[line] > band.begin + 1e-12) ++line;
      free[line] = band.end;
      band.line = line;
    }
  }
  return free.length;
}

function phaseText(timeline, phase) {
  const label = timeline.phases[phase];
  if (!label) return `phase ${phase + 1}`;
  const held = label.micro_batches.flat();
  return `strategy ${label.strategy}: ${numberOf(held.length, "micro-batch").replace("batchs", "batches")}, ${
      numberOf(held.reduce((sum, mb) => sum + mb[0], 0), "document")}`;
}

function drawBands(figure, timeline, unit, pixel, rows, over, lines) {
  const high = BAND_PIXELS * pixel, color = (band) => PHASE_COLORS[band.phase % PHASE_COLORS.length];
  const columns = (bands, top, bottom) => new Bokeh.ColumnDataSource({
    data: {
      left: bands.map((band) => band.begin * unit),
      right: bands.map((band) => band.end * unit),
      top: bands.map(top),
      bottom: bands.map(bottom),
      color: bands.map(color),
      what: bands.map((band) => phaseText(timeline, band.phase)),
      length: bands.map((band) => seconds(band.end - band.begin) + (band.measured ? ", measured" : ", predicted")),
      from: bands.map((band) => between(band.begin, band.end))
    }
  });
  const place = {left: {field: "left"}, right: {field: "right"}, top: {field: "top"}, bottom: {field: "bottom"}};
  const fill = {fill_color: {field: "color"}, line_color: null};
  figure.quad({
    ...place,
    source: columns(rows, (band) => band.track + 0.01, (band) => band.track + 0.99),
    ...fill,
    fill_alpha: 0.16
  });
  const strips =
      figure.quad({...place, source: columns(rows, (band) => band.track + 0.01, (band) => band.track + 0.09), ...fill});
  const line = (band) => (band.line - lines) * high;
  const bands = figure.quad({
    ...place,
    source: columns(over, (band) => line(band) + 0.1 * high, (band) => line(band) + 0.92 * high),
    ...fill
  });
  const short = (band) => (timeline.phases[band.phase] || {strategy: `phase ${band.phase + 1}`}).strategy;
  const wide = (band) => (band.end - band.begin) / Math.max(...over.map((one) => one.end)) * (window.innerWidth - 200);
  const named = over.filter((band) => wide(band) > 8 * short(band).length);
  figure.text({field: "x"}, {field: "y"}, {field: "text"}, {
    source: new Bokeh.ColumnDataSource({
      data: {
        x: named.map((band) => (band.begin + band.end) / 2 * unit),
        y: named.map((band) => line(band) + 0.5 * high),
        text: named.map(short)
      }
    }),
    text_align: "center",
    text_baseline: "middle",
    text_font_size: "12px",
    text_color: dark ? "#10151b" : "white"
  });
  hover(figure, [bands, strips], ["<b>@what</b> @length", "@from"]);
}

// A strip with the time axis that stays in sight while the rows scroll.
function axisStrip(into, options, ranges, most, unit, left) {
  const figure = chart(into, "time axis", {
    ...options,
    x_range: linked(new Bokeh.Range1d({start: -0.005 * most * unit, end: 1.01 * most * unit}), ranges),
    y_range: new Bokeh.Range1d({start: 0, end: 1}),
    height: 34,
    x_axis_location: "above",
    toolbar_location: "right",
    min_border_left: left,
    min_border_top: 0,
    min_border_bottom: 0
  });
  figure.toolbar.visible = false;
  figure.yaxes[0].visible = false;
  figure.outline_line_color = null;
  for (const grid of [...figure.xgrids, ...figure.ygrids]) grid.grid_line_color = null;
  last([...into.children]).classList.add("axis");
}

// W and S zoom around the mouse, A and D move, as in Perfetto; 0 shows everything.
function steerWithKeys(into, range, whole) {
  let at = 0.5;  // the mouse's place, as a part of the width
  into.tabIndex = 0;
  into.addEventListener("mousemove", (event) => {
    const box = into.getBoundingClientRect();
    at = Math.min(1, Math.max(0, (event.clientX - box.left - into.inset) / (box.width - into.inset - 30)));
  });
  into.addEventListener("mouseenter", () => {
    if (!document.activeElement || document.activeElement === document.body ||
        document.activeElement.classList.contains("timeline"))
      into.focus({preventScroll: true});
  });
  into.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== into) return;
    const width = range.end - range.start, key = event.key.toLowerCase();
    const show = (start, size) => range.setv({start, end: start + size});
    const zoom = (factor) => show(range.start + at * width * (1 - factor), width * factor);
    if (key === "w")
      zoom(0.8);
    else if (key === "s")
      zoom(1.25);
    else if (key === "a")
      show(range.start - 0.1 * width, width);
    else if (key === "d")
      show(range.start + 0.1 * width, width);
    else if (key === "0")
      show(whole[0], whole[1] - whole[0]);
    else
      return;
    event.preventDefault();
  });
}

// A field that marks the spans whose texts have all its words; Enter goes from one to the next.
function searchField(figure, sources, unit, range) {
  const none = () => ({left: [], right: [], top: [], bottom: []});
  const marked = new Bokeh.ColumnDataSource({data: none()});
  figure.quad({
    left: {field: "left"},
    right: {field: "right"},
    top: {field: "top"},
    bottom: {field: "bottom"},
    source: marked,
    fill_color: null,
    line_color: COLORS.mark,
    line_width: 2
  });
  let found = [], next = 0;
  const status = el("span", {class: "small", role: "status"});
  const search = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    found = [];
    next = 0;
    for (const {data} of words.length ? sources : [])
      data.left.forEach((_, i) => {
        const whole = `${data.what[i]} ${data.name[i]} ${data.ranks[i]}`.toLowerCase();
        if (words.every((word) => whole.includes(word)))
          found.push({left: data.left[i], right: data.right[i], top: data.top[i], bottom: data.bottom[i]});
      });
    found.sort((a, b) => a.left - b.left);
    const data = none();
    for (const one of found)
      for (const [name, column] of Object.entries(data)) column.push(one[name]);
    marked.data = data;
    const sum = found.reduce((total, one) => total + (one.right - one.left), 0) / unit;
    status.textContent = !words.length ? "" :
        found.length ? `${numberOf(found.length, "span")}, ${seconds(sum)} in all; Enter shows the next` :
                       "nothing found";
  };
  const field = el("input", {
    type: "search",
    "aria-label": "search the timeline's tasks",
    placeholder: "Search, such as: backward rank 3",
    oninput: () => search(field.value),
    onkeydown: (event) => {
      if (event.key !== "Enter" || !found.length) return;
      const one = found[next++ % found.length], width = Math.max(one.right - one.left, 1e-9);
      range.setv({start: one.left - 2 * width, end: one.right + 2 * width});
    }
  });
  return el("div", {class: "search"}, field, status);
}

function timelinePlot(into, timeline, most, ranges) {
  const both = timeline.predicted_seconds !== null && timeline.measured_seconds !== null;
  const [unitName, unit] = timeUnit(most);
  const number = timeline.tracks.length, rowHeight = Math.max(15, Math.min(38, 1200 / number));
  const [phaseRows, phases] = phaseTimes(timeline), lines = stack(phases), above = lines * BAND_PIXELS / rowHeight;
  const whole = [-0.005 * most * unit, 1.01 * most * unit];
  const x_range = linked(new Bokeh.Range1d({start: whole[0], end: whole[1]}), ranges);
  const y_range = new Bokeh.Range1d({start: number, end: -above});
  const word = (track) => (both ? (track.measured ? " measured" : " predicted") : "");
  const label = (track) => narrow ? short(track.ranks).slice(0, 9) + word(track).slice(0, 2) :
                                    rankWord(track.ranks, track.count) + word(track);
  const labels = timeline.tracks.map(label);
  const left = into.inset =
      24 + 7 * Math.max(...labels.map((text) => text.length), lines && !narrow ? (both ? 20 : 10) : 0);
  axisStrip(into, {}, ranges, most, unit, left);
  const figure = chart(into, `timeline of step ${timeline.step}: a row for each rank, with its tasks over time`, {
    x_range,
    y_range,
    height: Math.round(56 + (number + above) * rowHeight),
    x_axis_label: `${unitName} from the step's start`,
    min_border_left: left
  });
  const background = (measured, color) => {
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
  background(false, COLORS.row);
  background(true, COLORS.measured_row);
  drawBands(figure, timeline, unit, 1 / rowHeight, phaseRows, phases, lines);
  const axis = figure.yaxes[0], bandLabels = new Map();
  for (const measured of [false, true]) {
    const at = phases.filter((band) => band.measured === measured).map((band) => band.line);
    if (!at.length) continue;
    const middle = (Math.min(...at) + Math.max(...at) + 1) / 2 - lines;
    bandLabels.set(middle * BAND_PIXELS / rowHeight, narrow ? "" : "strategies" + word({measured}));
  }
  axis.ticker =
      new Bokeh.FixedTicker({ticks: [...bandLabels.keys(), ...labels.map((_, t) => t + 0.5)], minor_ticks: []});
  axis.major_label_overrides = new Map([...bandLabels, ...labels.map((text, t) => [t + 0.5, text])]);
  axis.major_label_text_font_size = rowHeight < 20 ? "10px" : "12px";
  figure.ygrids[0].grid_line_color = null;
  const describe = describer(timeline), renderers = [], keys = [], sources = [];
  // Nothing has a border: it would widen thin spans until many look like one.
  const order = [10, 0, 1, 2, 9, 11, 3, 4, 5, 6, 7, 8];
  for (const kind of order) {
    if (!timeline.spans.kind.includes(kind)) continue;
    const columns = spanColumns(timeline, kind, unit, describe);
    if (kind === WAITING) addLastWaits(columns, timeline, unit);
    const source = new Bokeh.ColumnDataSource({data: columns});
    const quads = figure.quad({
      left: {field: "left"},
      right: {field: "right"},
      top: {field: "top"},
      bottom: {field: "bottom"},
      source,
      fill_color: KIND_COLORS[kind],
      line_color: null,
      hover_line_color: COLORS.mark,
      hover_line_width: 1.5
    });
    renderers.push(quads);
    sources.push(source);
    const text = kind === WAITING ? "idle: waiting for the next task" : page.kinds[kind];
    keys.push(keyOf(KIND_COLORS[kind], text, () => (quads.visible = !quads.visible)));
  }
  hover(figure, renderers, ["<b>@what</b> @length", "@name", "@ranks", "@from"], {point_policy: "follow_mouse"});
  if (timeline.predicted_seconds !== null)
    figure.add_layout(line(timeline.predicted_seconds * unit, "height", COLORS.predicted, "dashed"));
  if (timeline.measured_seconds !== null)
    figure.add_layout(line(timeline.measured_seconds * unit, "height", COLORS.measured, "dashed"));
  steerWithKeys(into, x_range, whole);
  const numbers = [...new Set(phases.map((band) => band.phase))].sort((a, b) => a - b);
  const phaseKeys =
      numbers.map((phase) => keyOf(PHASE_COLORS[phase % PHASE_COLORS.length], phaseText(timeline, phase)));
  into.prepend(
      el("div", {class: "keys"}, phaseKeys), el("div", {class: "keys"}, keys),
      searchField(figure, sources, unit, x_range));
}

function timelines() {
  const runs = page.runs.filter((run) => run.timelines.length);
  if (!runs.length) return;
  const node = section(
      "timeline", "Timeline",
      "One row per rank. The thick bar shows what it computes, with collectives inside a stage in the lower half; " +
          "grey is idle. The thin bars below show what it sends: activations and gradients between stages, " +
          "gradients to home, and parameters. The tint and the line above a bar are the strategy that runs.");
  node.append(el(
      "p", {class: "small"},
      "With the mouse on the timeline: W and S zoom, A and D move, 0 shows all. Drag to zoom into a range, or hold " +
          "Ctrl and turn the wheel. Hover for details. Click a colour to hide or show its spans."));
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
            "p", {class: "small"},
            `${
                count(
                    timeline
                        .merged)} short spans are joined with a neighbour of their kind. A joined span is as high as ` +
                "the share of it in which the kind works, so its area is its time."));
      timelinePlot(node.appendChild(el("div", {class: "timeline"})), timeline, most, ranges);
    }
  }
}
