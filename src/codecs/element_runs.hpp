// Elements of a matrix as runs that lie in one row, and as the fp32 numbers that codecs work on.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/bfloat16.hpp"
#include "base/errors.hpp"
#include "codecs/codec.hpp"

namespace switchyard::codecs {

struct Bf16 {
  std::uint16_t bits;
};

inline float widened(Bf16 x) { return bfloat16_value(x.bits); }
inline float widened(float x) { return x; }
inline float widened(double x) { return static_cast<float>(x); }

inline void set(float& to, float x) { to = x; }
inline void set(double& to, float x) { to = x; }
inline void set(Bf16& to, float x) { to = {bfloat16_bits(x)}; }

inline void add(float& to, float x) { to += x; }
inline void add(double& to, float x) { to += x; }
inline void add(double& to, double x) { to += x; }
inline void add(Bf16& to, float x) { to = {bfloat16_bits(widened(to) + x)}; }
inline void add(Bf16& to, Bf16 x) { add(to, widened(x)); }

/// visit(T{}) for the type's C++ type. InternalError for integers.
template <class Visit>
void with_type(DType type, const Visit& visit) {
  switch (type) {
    case DType::f64:
      return visit(double{});
    case DType::f32:
      return visit(float{});
    case DType::bf16:
      return visit(Bf16{});
    case DType::i64:
    case DType::i32:
    case DType::u8:
      break;
  }
  throw InternalError(fmt::format("codecs: {} is no type of messages", name_of(type)));
}

/// visit(pointer, offset, n) for the longest runs of elements [first, first + count) that lie in one row.
template <class T, class Visit>
void for_each_run(const Elements& all, i64 first, i64 count, const Visit& visit) {
  T* const data = reinterpret_cast<T*>(all.data);
  if (all.rows == 1 || all.stride == all.columns) return visit(data + first, i64{0}, count);
  i64 row = first / all.columns, column = first % all.columns;
  for (i64 done = 0; done < count;) {
    const i64 n = std::min(count - done, all.columns - column);
    visit(data + row * all.stride + column, done, n);
    done += n, ++row, column = 0;
  }
}

}  // namespace switchyard::codecs
