// How the keys and values of attention come to the ring ranks whose queries see them.
#pragma once

#include <string_view>

namespace switchyard {

/// gather: all before the first block of attention. ring: block by block, those of the next block while one is
/// computed.
enum class KeyPassing { gather, ring };
/// "gather", "ring".
std::string_view name_of(KeyPassing passing);

}  // namespace switchyard
