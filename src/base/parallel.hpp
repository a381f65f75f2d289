// Independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace switchyard {

/// Calls body(0), ..., body(count - 1), each once, on up to 8 threads, of which the calling one is the first. What a
/// call throws is thrown here when all threads have ended; calls that have not begun then are left out.
void parallel_for(size_t count, const std::function<void(size_t)>& body);

}  // namespace switchyard
