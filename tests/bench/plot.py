"""Plots of the results as SVG."""


def draw_all(found, folder):
    del found, folder
