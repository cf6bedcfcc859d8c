"""What the lessons are written with: a run on ranks, a prediction, a picture, an exercise, a puzzle.

    begin("02")                                       # says what it runs on; under mpirun lets rank 0 alone print
    guess = predict("How many sync points?", None)    # the reader's number in place of None
    found = run(mlp, ranks=4)                         # mlp(tp) on every rank
    guess.check(found.sync_points)
    exercise("2.1", answer)
    puzzle("bias-once", bias_once)

A lesson is a notebook, whose ranks are threads, and a script of the same cells, which also runs under mpirun: then the
ranks are the processes that were started, as many as there are.
"""
from minitp.lesson.exercises import exercise
from minitp.lesson.pictures import picture
from minitp.lesson.predictions import predict
from minitp.lesson.puzzles import puzzle
from minitp.lesson.runs import Run, run
from minitp.lesson.stage import begin, in_notebook

__all__ = ["Run", "begin", "exercise", "in_notebook", "picture", "predict", "puzzle", "run"]
