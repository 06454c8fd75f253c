"""Optimus (EuroSys'18): workers by marginal gain, from fitted speed and convergence."""
