// Programs of one step that differ in their options.
#pragma once

#include <memory>

#include "compiler/assemble.hpp"

namespace switchyard::compiler {

/// Assembles as assemble() does. What all programs of the step have in common, the messages between stages, is made
/// once.
class StepAssembler {
 public:
  StepAssembler(const batch::StepPlan& plan, const Plans& plans);
  ~StepAssembler();
  ir::Program program(const AssembleOptions& options);

 private:
  struct Common;
  const batch::StepPlan& plan_;
  const Plans& plans_;
  std::unique_ptr<Common> common_;
};

}  // namespace switchyard::compiler
