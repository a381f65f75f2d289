#!/usr/bin/env bash
# A batch script for Slurm: sbatch recipes/slurm.sh JOB.toml RUN
#SBATCH --job-name=switchyard
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
job=${1:?usage: sbatch slurm.sh JOB.toml RUN}
run=${2:?usage: sbatch slurm.sh JOB.toml RUN}

# The first job of a run starts it, later ones go on.
words=(switchyard train "$job" --ranks "$SLURM_NTASKS" --out "$run")
if compgen -G "$run/checkpoints/step-*/COMMITTED" >/dev/null; then words+=(--resume "$run"); fi

# With --mpi=pmix the ranks talk by MPI, else over TCP. srun passes USR1 on to all ranks, which then save and exit with
# 138.
status=0
srun "${words[@]}" || status=$?
if [[ $status -eq 138 ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
