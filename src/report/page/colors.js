"use strict";
// Draws the page from the data in #data (report/page.hpp) with BokehJS. Texts of the data are inserted as text, never
// as markup. The files of this folder are one script, joined at build time in the order of report_assets.cmake.

const page = JSON.parse(document.getElementById("data").textContent);

// ---- colours, by the colour scheme that the reader prefers

const scheme = window.matchMedia("(prefers-color-scheme: dark)");
scheme.addEventListener("change", () => location.reload());
const dark = scheme.matches;
const COLORS = dark ? {
  panel: "#1b212a",
  ink: "#e3e8ef",
  soft: "#a3afbd",
  line: "#39424e",
  grid: "#28303a",
  axis: "#5d6977",
  measured_row: "#2a2419",
  row: "#1f262f",
  limit: "#ff7b72",
  predicted: "#79aede",
  measured: "#e8994f",
  chosen: "#56b870",
  possible: "#6d9bcb",
  excluded: "#4c5663",
  faint: "#232a33",
  mark: "#ffe066"
} :
                      {
                        panel: "#ffffff",
                        ink: "#1c2430",
                        soft: "#5b6675",
                        line: "#dde2e8",
                        grid: "#edf0f3",
                        axis: "#b8c0ca",
                        measured_row: "#fdf6ea",
                        row: "#fafbfc",
                        limit: "#b3261e",
                        predicted: "#2f5d8a",
                        measured: "#d9772b",
                        chosen: "#3f8f55",
                        possible: "#4e79a7",
                        excluded: "#c3c9d1",
                        faint: "#fafbfc",
                        mark: "#111111"
                      };
const IDLE_COLOR = dark ? "#39424e" : "#e3e6ea";
const KIND_COLORS = [
  "#4e79a7", "#3f8f55", "#9ccc8f", "#d9534f", "#f28e2b", "#f7c28b", "#8e6bb0", "#9c755f", "#499894", "#e0b93b",
  IDLE_COLOR, "#bab0ac"
];
const PHASE_COLORS = dark ? ["#5aa9a5", "#c98bc1", "#b9a24b", "#7f9fe0", "#d08770", "#8fb573", "#a58fd8", "#9aa5b1"] :
                            ["#2a8c86", "#b0569f", "#a08320", "#4a6fc4", "#b85c3e", "#5f8f3e", "#7a5fbf", "#66717d"];
const CLASS_COLORS = dark ?
    ["#4d7fb3", "#7fadd8", "#b5d3ec", "#d1c07a", "#8db3b4", "#a487c4", "#b08c77", "#f28e2b", "#9aa1ab"] :
    ["#2f5d8a", "#5b8fbf", "#a6c8e4", "#b5a24f", "#7a9e9f", "#8e6bb0", "#9c755f", "#f28e2b", "#d4d4d8"];
const RUN_COLORS = dark ? ["#79aede", "#e8994f", "#56b870", "#e8706b", "#b394d6", "#5fb3ae", "#c29a84", "#a3afbd"] :
                          ["#2f5d8a", "#d9772b", "#3f8f55", "#b0413e", "#8e6bb0", "#499894", "#9c755f", "#5b6675"];
