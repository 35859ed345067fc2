"""Where data-parallel work runs: on threads of this process, or on Spark."""
