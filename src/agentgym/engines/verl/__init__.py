"""verl as the updater: its workers on Ray learn and serve, our loop drives them.

Modules below ``server`` run in verl's own environment, and import nothing of this
package but each other and ``engines/supervise.py``; see the README of this folder.
"""
