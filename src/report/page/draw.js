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
const sections =
    [steps, timelines, shares, longestTasks, slowestRanks, memory, buckets, documents, links, matrices, candidates];
for (const draw of sections) draw();
document.getElementById("page").append(
    el("footer", {}, "Drawn with BokehJS (BSD 3-clause licence, in the source of this page)."));
Promise.all(views).then(() => {
  document.body.dataset.state = document.body.dataset.state || "ready";
});
