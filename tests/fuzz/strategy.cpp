// Any text as a strategy file: a UserError, or a strategy that prints to a file which reads back the same.
#include "config/strategy.hpp"

#include <cstdint>

#include "base/errors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace switchyard;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto strategy = config::strategy_from_json(text, "fuzz");
    std::string printed;
    try {
      printed = config::to_json(strategy);
      check(config::strategy_from_json(printed, "printed") == strategy, "{} reads back as another strategy", printed);
    } catch (const UserError& error) {
      throw InternalError(error.what());
    }
  } catch (const UserError&) {
  }
  return 0;
}
