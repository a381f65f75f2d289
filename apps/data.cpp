#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/errors.hpp"
#include "commands.hpp"
#include "data/corpus.hpp"
#include "data/stats.hpp"
#include "files/python_half.hpp"

namespace switchyard::apps {
namespace {

namespace fs = std::filesystem;

// Data preparation is written in Python, which replaces this process.
int prepare(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "prepare");
  std::vector<std::string> words = files::python_command("switchyard_data", arguments);
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
  prepared->callback(
      [prepared, &action] { action.run = [extras = prepared->remaining()] { return prepare(extras); }; });
  auto folder = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* shown = data->add_subcommand("stats", "Histogram of document lengths");
  shown->add_option("dir", *folder, "Folder made by `data prepare`")->required();
  shown->add_flag("--json", *json, "One JSON object on the last line");
  shown->callback([folder, json, &action] { action.run = [folder, json] { return stats(*folder, *json); }; });
}

}  // namespace switchyard::apps
