"""Operations that roles share. Each compares its own live fact with the desired state, in one round trip;
where nothing changes, all of theirs are one (facts.py).
"""
