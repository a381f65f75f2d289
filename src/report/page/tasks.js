// ---- the longest tasks

function longestTasks() {
  const runs = page.runs.filter((run) => run.longest.length);
  if (!runs.length) return;
  const node = section(
      "longest", "Longest tasks",
      "Each task on the rank where it takes longest, from its first moment of work to its last. Of a measured step " +
          "where there is one.");
  for (const run of runs) {
    title(node, run);
    const measured = run.longest[0].measured;
    const timeline = run.timelines.find((one) => (measured ? one.measured_seconds : one.predicted_seconds) !== null);
    const describe = describer(timeline || {names: run.longest.map((task) => task.name), phases: []});
    const rows = run.longest.map(
        (task, t) =>
            [String(t + 1), `${page.kinds[task.kind]}: ${describe(task.name)}`, String(task.rank),
             seconds(task.end - task.begin), percent(task.working / Math.max(task.end - task.begin, 1e-12)),
             seconds(task.begin)]);
    const made = table(["", "task", "rank", measured ? "measured" : "predicted", "working", "starts at"], rows);
    made.classList.add("long");
    node.append(made);
  }
}
