#include "base/status_line.hpp"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>

namespace switchyard {
namespace {

/// A terminal, and what was printed on it.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    int end = -1;
    EXPECT_EQ(openpty(&read_, &end, nullptr, nullptr, &size), 0);
    file_.reset(fdopen(end, "w"));
  }
  ~Terminal() { close(read_); }
  std::FILE* file() const { return file_.get(); }
  /// All from the last call on, as soon as it ends with `end`; seconds are written as N.
  std::string until(const std::string& end) const {
    std::string all;
    std::array<char, 4096> part{};
    while (!all.ends_with(end)) {
      const ssize_t count = read(read_, part.data(), part.size());
      if (count <= 0) break;
      all += std::regex_replace(std::string(part.data(), static_cast<size_t>(count)), std::regex("[0-9]+ s"), "N s");
    }
    return all;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  int read_ = -1;
  std::unique_ptr<std::FILE, Close> file_;
};

TEST(StatusLine, says_what_goes_on_and_is_erased) {
  const Terminal terminal(80);
  const std::string erased = "\r" + std::string(20, ' ') + "\r";
  {
    StatusLine line("plan", "searching", std::nullopt, terminal.file(), std::chrono::milliseconds(0));
    EXPECT_EQ(terminal.until(" s"), "\rplan: searching, N s");
    line.say("found");
    EXPECT_EQ(terminal.until("\n"), erased + "found\r\n");
    EXPECT_EQ(terminal.until(" s"), "\rplan: searching, N s");
  }
  EXPECT_EQ(terminal.until(erased), erased);
}

TEST(StatusLine, fits_the_terminal) {
  for (const auto& [columns, text] : std::initializer_list<std::pair<unsigned short, std::string>>{
           {30, "\rsimulate: one step of..., N s"}, {20, "\rsimulate: o..., N s"}, {8, "\rsimulat"}}) {
    const Terminal terminal(columns);
    const StatusLine line("simulate", "one step of a job with a long name", std::nullopt, terminal.file(),
                          std::chrono::milliseconds(0));
    EXPECT_EQ(terminal.until(text.substr(text.size() - 2)), text);
  }
}

TEST(StatusLine, wraps_what_it_says_at_the_width_of_the_terminal) {
  const Terminal terminal(20);
  StatusLine line("plan", "searching", std::nullopt, terminal.file(), std::chrono::hours(1));
  line.say("limited by computing; it needs 3 MiB");
  EXPECT_EQ(terminal.until("MiB\r\n"), "limited by\r\ncomputing; it needs\r\n3 MiB\r\n");
}

/// The ends of a pipe.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    read_ = fdopen(ends[0], "r");
    write_ = fdopen(ends[1], "w");
  }
  ~Pipe() {
    std::fclose(read_);
    std::fclose(write_);
  }
  std::FILE* file() const { return write_; }
  /// The next line, as soon as there is one; seconds are written as N.
  std::string line() const {
    std::array<char, 256> text{};
    if (!std::fgets(text.data(), static_cast<int>(text.size()), read_)) return "";
    return std::regex_replace(std::string(text.data()), std::regex("[0-9]+ s"), "N s");
  }

 private:
  std::FILE *read_ = nullptr, *write_ = nullptr;
};

TEST(StatusLine, elsewhere_prints_a_line_when_what_goes_on_has_changed) {
  const Pipe pipe;
  StatusLine line("plan", "searching", ProgressLines{std::chrono::milliseconds(1), std::chrono::hours(1)}, pipe.file());
  EXPECT_EQ(pipe.line(), "plan: searching, N s\n");
  line.now("simulating");
  EXPECT_EQ(pipe.line(), "plan: simulating, N s\n") << "no line twice";
}

TEST(StatusLine, elsewhere_repeats_the_line_after_a_while) {
  const Pipe pipe;
  const StatusLine line("plan", "searching", ProgressLines{std::chrono::milliseconds(1), std::chrono::milliseconds(2)},
                        pipe.file());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pipe.line(), "plan: searching, N s\n");
}

TEST(StatusLine, lines_come_as_often_as_the_environment_says) {
  ::unsetenv("SWITCHYARD_PROGRESS");
  ASSERT_TRUE(progress_lines());
  EXPECT_EQ(progress_lines()->look, std::chrono::seconds(10));
  EXPECT_EQ(progress_lines()->every, std::chrono::seconds(30));
  ::setenv("SWITCHYARD_PROGRESS", "0.5", 1);
  EXPECT_EQ(progress_lines()->look, std::chrono::milliseconds(500));
  EXPECT_EQ(progress_lines()->every, std::chrono::milliseconds(1500));
  for (const char* none : {"off", "0", "", "-1", "nan", "1e300", "5s"}) {
    ::setenv("SWITCHYARD_PROGRESS", none, 1);
    EXPECT_FALSE(progress_lines()) << none;
  }
  ::unsetenv("SWITCHYARD_PROGRESS");
}

TEST(StatusLine, prints_only_what_is_said_where_neither_terminal_nor_lines_are_wanted) {
  std::FILE* file = std::tmpfile();
  {
    StatusLine line("plan", "searching", std::nullopt, file, std::chrono::milliseconds(0));
    line.say("found");
  }
  std::string text(100, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text, "found\n");
}

}  // namespace
}  // namespace switchyard
