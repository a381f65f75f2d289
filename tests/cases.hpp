// How many cases a test runs.
#pragma once

namespace switchyard {

/// `fewer` in builds that are slow, without optimization or with sanitizers: they are to run the code, not all cases.
template <class Count>
constexpr Count cases(Count all, Count fewer) {
#ifdef SWITCHYARD_FEWER_CASES
  static_cast<void>(all);
  return fewer;
#else
  static_cast<void>(fewer);
  return all;
#endif
}

}  // namespace switchyard
