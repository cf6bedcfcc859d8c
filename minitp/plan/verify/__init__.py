"""Published values that the planner must reproduce: reading them, planning each, judging.

  case        a row and the file's reader        keys, units   what inputs and units may be called
  registry    quantities by name                 quantities    what each is, by topic
  shape       the model of a row                 judge         verdicts
"""
