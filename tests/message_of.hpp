// What a call says when it fails.
#pragma once

#include <string>

#include "base/errors.hpp"

namespace switchyard {

/// The message of the error that `call` throws; "no error" if it throws none.
template <class Error = UserError, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace switchyard
