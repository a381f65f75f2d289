// What the stand-in library takes for a device's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace switchyard::comm {

class StandinStream {
 public:
  virtual ~StandinStream() = default;
  /// Does `work` after all that the stream was given before.
  virtual void run(std::function<void()> work) = 0;
  /// Within work: these bytes are read, or written.
  virtual void use(std::byte* data, std::int64_t bytes, bool write) = 0;
};

}  // namespace switchyard::comm
