#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/environment.hpp"
#include "base/errors.hpp"
#include "commands.hpp"
#include "data/corpus.hpp"
#include "data/stats.hpp"

namespace switchyard::apps {
namespace {

namespace fs = std::filesystem;

fs::path program_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

// The folder that has `python`: share/switchyard of an installed prefix, or the source tree, the parent of the build
// folder, unless SWITCHYARD_ROOT names another.
fs::path root() {
  if (const auto named = environment("SWITCHYARD_ROOT")) return *named;
  const fs::path above = program_folder().parent_path(), installed = above / "share/switchyard";
  return fs::exists(installed) ? installed : above;
}

// That of the source tree's .venv or of the environment that the program is installed into, else the one on PATH,
// unless SWITCHYARD_PYTHON names another.
std::string python() {
  if (const auto named = environment("SWITCHYARD_PYTHON")) return *named;
  for (const fs::path& candidate : {root() / ".venv/bin/python", program_folder() / "python"})
    if (fs::exists(candidate)) return candidate.string();
  return "python3";
}

// Data preparation is written in Python (tokenizers, pyarrow), which replaces this process.
int prepare(std::vector<std::string> arguments) {
  const fs::path package = root() / "python";
  if (!fs::exists(package / "switchyard_data"))
    user_error(
        "found no data preparation at {}. Run the program from its build folder or an installed prefix, or set "
        "SWITCHYARD_ROOT to the source folder.",
        package.string());
  setenv("PYTHONPATH", package.c_str(), 1);
  std::vector<std::string> words = {python(), "-m", "switchyard_data", "prepare"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  user_error("cannot start {}. Run `make build`, which installs it, or name a Python in SWITCHYARD_PYTHON.", words[0]);
}

int stats(const std::string& folder, bool json) {
  const data::Corpus corpus = data::Corpus::open(folder);
  std::vector<i64> lengths;
  for (i64 d = 0; d < corpus.documents(); ++d) lengths.push_back(corpus.length(d));
  const data::Histogram histogram = data::histogram_of(lengths);
  if (json)
    fmt::print("{}\n", data::json_of(histogram, fs::path(folder).filename().string(), corpus.origin()));
  else
    fmt::print("{}", data::text_of(histogram));
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* data = app.add_subcommand("data", "Prepares a corpus, or shows the lengths of its documents");
  data->require_subcommand(1);
  CLI::App* prepared = data->add_subcommand(
      "prepare", "Tokenizes text, source files, .jsonl(.gz/.zst) or .parquet into a folder for training");
  prepared->set_help_flag();  // Python parses its options and prints their help
  prepared->allow_extras();
  prepared->callback([prepared, &action] { action = [extras = prepared->remaining()] { return prepare(extras); }; });
  auto folder = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* shown = data->add_subcommand("stats", "Histogram of document lengths");
  shown->add_option("dir", *folder, "Folder made by `data prepare`")->required();
  shown->add_flag("--json", *json, "One JSON object on the last line");
  shown->callback([folder, json, &action] { action = [folder, json] { return stats(*folder, *json); }; });
}

}  // namespace switchyard::apps
