#include "base/group_call.hpp"

namespace switchyard {

std::string_view name_of(GroupCall call) {
  switch (call) {
    case GroupCall::all_gather:
      return "all_gather";
    case GroupCall::reduce_scatter:
      return "reduce_scatter";
    case GroupCall::all_reduce:
      return "all_reduce";
  }
  return "";
}

}  // namespace switchyard
