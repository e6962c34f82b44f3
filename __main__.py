"""`python FOLDER VERB`: the command from the folder that has the product's files, a clone or an installed tree."""

from cli import main

main()
