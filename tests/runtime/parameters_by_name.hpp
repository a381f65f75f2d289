// Parameters by name, and what goes wrong with them.
#pragma once

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {

inline int find(const ir::Graph& graph, const std::string& name) {
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (graph.param(static_cast<int>(p)).name.find(name) != std::string::npos) return static_cast<int>(p);
  ADD_FAILURE() << "no parameter " << name;
  return 0;
}

template <class Call>
std::string message(Call call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

}  // namespace switchyard::runtime
