"""The verl engine: verl's workers on Ray learn and serve; our loop controls them.

Modules imported by ``server`` run in verl's own environment, and import nothing of this
package but each other and ``engines/supervise.py``; see the README of this folder.
"""
