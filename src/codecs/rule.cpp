#include "codecs/rule.hpp"

namespace switchyard::codecs {

Codec Rule::codec_for(DType type, i64 elements, bool crosses_hosts) const {
  const i64 plain = elements * size_of(type);
  if (plain == 0 || plain < smallest || (between_hosts && !crosses_hosts)) return Codec::none;
  if (codec != Codec::lossless && encoded_bytes(codec, type, elements) >= plain) return Codec::none;
  return codec;
}

}  // namespace switchyard::codecs
