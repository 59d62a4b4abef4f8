"""What every job of the pipeline has in common.

``job`` is what a job is and gets, ``described`` what its work is called in Spark's user
interface, ``packets`` what the tasks of a job by Spark send each other, ``spread`` how a function
is called for many items, here or on Spark's workers.
"""
