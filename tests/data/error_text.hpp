// What a call says when it fails.
#pragma once

#include <string>

#include "base/errors.hpp"

namespace switchyard::data {

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no UserError";
}

}  // namespace switchyard::data
