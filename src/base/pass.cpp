#include "base/pass.hpp"

#include "base/errors.hpp"

namespace switchyard {

std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::F:
      return "F";
    case Pass::B:
      return "B";
    case Pass::W:
      return "W";
    case Pass::BW:
      return "BW";
  }
  throw InternalError("name_of: unknown pass");
}

}  // namespace switchyard
