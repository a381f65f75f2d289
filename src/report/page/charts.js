// ---- charts

const views = [];

// Bokeh moves a canvas by half a pixel before it clears it, so that half of the first column and row would stay: of a
// chart that is resized they would show labels from where they were.
const clearPart = CanvasRenderingContext2D.prototype.clearRect;
CanvasRenderingContext2D.prototype.clearRect = function(x, y, width, height) {
  clearPart.call(this, x - 1, y - 1, width + 1, height + 1);
};

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

// Adds a chart to `into`. label: what it shows, for readers who don't see it. The wheel zooms only with Ctrl held, so
// that the page still scrolls.
function chart(into, label, options, zoom = "x") {
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
  figure.outline_line_color = COLORS.line;
  figure.background_fill_color = figure.border_fill_color = COLORS.panel;
  for (const axis of [...figure.xaxes, ...figure.yaxes]) {
    axis.axis_label_text_font_style = "normal";
    axis.axis_label_text_color = axis.major_label_text_color = COLORS.soft;
    axis.axis_line_color = axis.major_tick_line_color = COLORS.axis;
    axis.minor_tick_line_color = null;
  }
  for (const grid of [...figure.xgrids, ...figure.ygrids]) grid.grid_line_color = COLORS.grid;
  into.append(el("div", {role: "img", "aria-label": label}));
  views.push(Bokeh.Plotting.show(figure, last([...into.children])));
  return figure;
}

const tooltip = (rows) =>
    `<div style="font:12px system-ui,sans-serif;color:#1c2430;max-width:min(440px,70vw)">${rows.join("<br>")}</div>`;
function hover(figure, renderers, rows, more = {}) {
  figure.add_tools(new Bokeh.HoverTool({renderers, tooltips: tooltip(rows), ...more}));
}
function line(at, dimension, color, dash) {
  return new Bokeh.Span({location: at, dimension, line_color: color, line_width: 1.5, line_dash: dash || "solid"});
}
