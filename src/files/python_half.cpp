#include "files/python_half.hpp"

#include <cstdlib>
#include <filesystem>

#include "base/environment.hpp"
#include "base/errors.hpp"

namespace switchyard::files {
namespace {

namespace fs = std::filesystem;

fs::path program_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

fs::path root() {
  if (const auto named = environment("SWITCHYARD_ROOT")) return *named;
  const fs::path above = program_folder().parent_path(), installed = above / "share/switchyard";
  return fs::exists(installed) ? installed : above;
}

// `-m MODULE` would look for every module in the working folder first, where a user's own tokenize.py may lie.
constexpr const char* kStart =
    "import sys; sys.path[:] = filter(None, sys.path); del sys.argv[0]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)";

std::string interpreter() {
  if (const auto named = environment("SWITCHYARD_PYTHON")) return *named;
  for (const fs::path& candidate : {root() / ".venv/bin/python", program_folder() / "python"})
    if (fs::exists(candidate)) return candidate.string();
  return "python3";
}

}  // namespace

std::vector<std::string> python_command(const std::string& module, const std::vector<std::string>& arguments) {
  const fs::path package = root() / "python";
  if (!fs::exists(package / "switchyard_data"))
    user_error(
        "found no Python modules at {}. Run the program from its build folder or an installed prefix, or set "
        "SWITCHYARD_ROOT to the source folder.",
        package.string());
  const auto others = environment("PYTHONPATH");
  ::setenv("PYTHONPATH", (others ? package.string() + ":" + *others : package.string()).c_str(), 1);
  std::vector<std::string> words = {interpreter(), "-c", kStart, module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace switchyard::files
