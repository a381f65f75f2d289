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
  /// Whether the stream takes more. One whose other work is done where it is given takes none beside `work`.
  virtual bool is_free() { return true; }
  /// Within work: these bytes of the device are read, or written. Returns where work finds them.
  virtual std::byte* use(std::byte* data, std::int64_t bytes, bool write) = 0;
};

}  // namespace switchyard::comm
