#include "files/python_half.hpp"

#include "base/environment.hpp"
#include "base/errors.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

// Variables of a test, set back at its end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name), before_(environment(name)) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(PythonHalf, is_started_as_the_variables_say) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "python/switchyard_data");
  const Variable root("SWITCHYARD_ROOT", scratch.path().string()), python("SWITCHYARD_PYTHON", "snake"),
      path("PYTHONPATH", "/else");
  const std::vector<std::string> words = python_command("a.b", {"--c", "d e"});
  ASSERT_EQ(words.size(), 6U);
  EXPECT_EQ(words[0] + " " + words[1], "snake -c");
  EXPECT_EQ(std::vector(words.begin() + 3, words.end()), (std::vector<std::string>{"a.b", "--c", "d e"}));
  EXPECT_EQ(environment("PYTHONPATH"), (scratch / "python").string() + ":/else");
}

TEST(PythonHalf, has_the_interpreter_of_the_source_tree_first) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "python/switchyard_data");
  const Variable root("SWITCHYARD_ROOT", scratch.path().string()), path("PYTHONPATH", "");
  std::filesystem::create_directories(scratch / ".venv/bin");
  std::ofstream(scratch / ".venv/bin/python");
  EXPECT_EQ(python_command("m", {})[0], (scratch / ".venv/bin/python").string());
}

TEST(PythonHalf, that_is_missing_is_an_error) {
  const Scratch scratch;
  const Variable root("SWITCHYARD_ROOT", scratch.path().string());
  EXPECT_EQ(message_of<UserError>([] { python_command("m", {}); }),
            "found no Python modules at " + (scratch / "python").string() +
                ". Run the program from its build folder or an installed prefix, or set SWITCHYARD_ROOT to the source "
                "folder.");
}

}  // namespace
}  // namespace switchyard::files
