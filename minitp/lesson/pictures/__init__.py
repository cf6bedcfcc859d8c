"""Pictures in a lesson: the app's own figures, each with its words. A script prints the words alone.

A figure is made only where somebody sees it, so a script needs no Plotly: what draws is imported when it draws.
"""
from minitp.lesson.pictures.cuts import bytes_per_rank, chain, held, parameter
from minitp.lesson.pictures.plans import costs, growing, lines, links, memory, payloads
from minitp.lesson.pictures.runs import collective_round, lanes, timeline, watch
from minitp.lesson.pictures.shown import PLAYER, PLOTLY, picture

__all__ = ["PLAYER", "PLOTLY", "bytes_per_rank", "chain", "collective_round", "costs", "growing", "held", "lanes",
           "lines", "links", "memory", "parameter", "payloads", "picture", "timeline", "watch"]
