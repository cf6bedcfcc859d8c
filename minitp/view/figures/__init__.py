"""Plotly figures from the view models. A figure computes nothing: it places and colors what a view model says."""
