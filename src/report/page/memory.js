// ---- memory

// The budget is part of the scale unless the bars and curves would be too low to be read.
const scaleOf = (used, budget) => (budget > 8 * used ? used : Math.max(used, budget));

function budgetKey(memory, highest) {
  const above = memory.budget > highest ? " (above the chart)" : "";
  return keyOf(COLORS.limit, `${memory.limit_name}, ${bytes(memory.budget)}${above}`);
}

function memoryCurve(into, memory, curve, end) {
  const used = Math.max(...curve.seconds.map((_, i) => curve.bytes.reduce((sum, column) => sum + column[i], 0))),
        highest = scaleOf(used, memory.budget);
  const [unitName, unit] = byteUnit(highest), [timeName, time] = timeUnit(end);
  const figure = chart(into, `memory of ${rankWord(curve.ranks, curve.count)} over the step, by class`, {
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
      {source: new Bokeh.ColumnDataSource({data}), line_color: COLORS.ink, line_width: 1});
  hover(figure, [total], ["@text"], {mode: "vline", line_policy: "prev"});
  if (memory.budget > 0) figure.add_layout(line(memory.budget / unit, "width", COLORS.limit, "dashed"));
  if (memory.budget > 0) keys.push(budgetKey(memory, highest));
  into.prepend(el("div", {class: "keys"}, keys));
}

function peaks(into, memory) {
  const ranks = Math.max(memory.predicted_peak.length, memory.measured_peak.length);
  if (!ranks) return;
  const highest = scaleOf(Math.max(...memory.predicted_peak, ...memory.measured_peak), memory.budget),
        [unitName, unit] = byteUnit(highest);
  const figure = chart(into, "peak memory of every rank", {
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
      fill_color: COLORS.predicted,
      line_color: null
    });
    hover(figure, [marks], ["rank @x: <b>@text</b> predicted"]);
    keys.push(keyOf(COLORS.predicted, "predicted"));
  }
  if (memory.budget > 0) {
    figure.add_layout(line(memory.budget / unit, "width", COLORS.limit, "dashed"));
    keys.push(budgetKey(memory, highest));
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
