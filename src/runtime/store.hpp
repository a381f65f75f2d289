// A rank's part of a model.
#pragma once

#include "runtime/home.hpp"
#include "runtime/residuals.hpp"
#include "runtime/working_parameters.hpp"

namespace switchyard::runtime {

/// Home for the optimizer, what strategies borrow from it, both as large as the holdings say, and error feedback.
struct Store {
  Store(const compiler::Plans& plans, int rank, at::Device device)
      : holdings(plans, rank),
        home(plans, holdings, device),
        residuals(plans, rank),
        working(plans, holdings, home, device) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const compiler::Holdings holdings;
  Home home;
  Residuals residuals;
  WorkingParameters working;
};

}  // namespace switchyard::runtime
