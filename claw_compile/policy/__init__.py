"""The phase that decides what each agent may do, and refuses a pod that would let it do more.

The limits of one turn, which the contract calls ``Policy``, are a small part of it.
"""
