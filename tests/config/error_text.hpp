// The message of the UserError that a call throws.
#pragma once

#include <string>

#include "base/errors.hpp"

namespace switchyard::config {

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace switchyard::config
