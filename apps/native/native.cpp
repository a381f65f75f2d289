// The Python module switchyard._native: commands as functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>
#include <vector>

#include "../figures.hpp"
#include "base/clock.hpp"
#include "base/errors.hpp"
#include "files/disk.hpp"

namespace nb = nanobind;

namespace switchyard::apps {
namespace {

// Lets Python handle signals now and then: Ctrl-C raises KeyboardInterrupt, which ends what computes. Only the main
// thread handles them; another one that asked for Python's lock while the interpreter ends would end the process by an
// abort.
class Signals {
 public:
  Signals() {
    const nb::module_ threading = nb::module_::import_("threading");
    handled_here_ = threading.attr("current_thread")().is(threading.attr("main_thread")());
  }

  void operator()() {
    constexpr std::chrono::milliseconds kInterval{50};
    if (!handled_here_ || Clock::now() < next_) return;
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    next_ = Clock::now() + kInterval;
  }

 private:
  bool handled_here_ = false;
  Clock::time_point next_ = Clock::now();
};

// Bytes of paths that are no UTF-8 are those of os.fsencode and os.fsdecode.
std::string word_of(const nb::bytes& encoded) {
  std::string word(encoded.c_str(), encoded.size());
  if (word.find('\0') != std::string::npos) throw nb::value_error("embedded null byte");
  return word;
}

[[noreturn]] void raise(const std::string& message) {
  const nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "surrogateescape"));
  PyErr_SetObject(nb::module_::import_("switchyard").attr("Error").ptr(), text.ptr());
  throw nb::python_error();
}

std::string json_figures(const std::string& command, const std::vector<nb::bytes>& encoded) {
  std::vector<std::string> words;
  for (const nb::bytes& word : encoded) words.push_back(word_of(word));
  try {
    Signals signals;
    const auto poll = [&signals] { signals(); };
    const nb::gil_scoped_release released;
    std::string text;
    files::with_disk_errors(
        [&] { text = figures(command, words, {.now = [poll](const std::string&) { poll(); }, .poll = poll}).dump(); });
    return text;
  } catch (const nb::python_error&) {
    throw;
  } catch (const UserError& error) {
    raise(error.what());
  } catch (const ClusterError& error) {
    raise(error.what());
  } catch (const std::exception& error) {
    raise(std::string("internal error: ") + error.what());
  }
}

}  // namespace

NB_MODULE(_native, module) {
  module.def("figures", &json_figures, nb::arg("command"), nb::arg("words"),
             "What a command prints with --json. words: its options, each as bytes.");
}

}  // namespace switchyard::apps
