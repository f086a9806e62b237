"""The columns of census income, as UCI documents them: `census-income.names` and the survey's code book.

Source: Lane and Kohavi (2000), "Census-Income (KDD)", UCI Machine Learning Repository, doi:10.24432/C5N30T,
for columns, words and order; its `?` stands for unknown. Ranges are those of the survey's fields (US Census
Bureau, "Current Population Survey, March 1994", technical documentation): age is top-coded at 90, wages are
cents in four digits, sums are dollars in five. Nothing here was found by looking at rows.
"""

from collections.abc import Mapping

from dpexp.data.table import Category, Column, Number

__all__ = ["CLASSES", "COLUMNS", "IGNORED", "SCHEMA"]

CLASSES = ("- 50000.", "50000+.")
"""Targets 0 and 1: up to, and more than, 50,000 dollars a year."""

IGNORED = ["instance weight"]
"""How many people a row stands for: not to be used by classifiers, the documentation says."""


def _words(text: str) -> Category:
    return Category(words=tuple(" ".join(word.split()) for word in text.split(";")))


def _codes(count: int) -> Category:
    return Category(words=tuple(str(code) for code in range(count)))


_DOLLARS = Number(low=0, high=99999, log=True)
_YES_OR_NO = "Not in universe; No; Yes"
_COUNTRY = _words(
    """?; United-States; Outlying-U S (Guam USVI etc); Puerto-Rico; Cambodia; Canada; China; Columbia;
    Cuba; Dominican-Republic; Ecuador; El-Salvador; England; France; Germany; Greece; Guatemala;
    Haiti; Holand-Netherlands; Honduras; Hong Kong; Hungary; India; Iran; Ireland; Italy; Jamaica;
    Japan; Laos; Mexico; Nicaragua; Panama; Peru; Philippines; Poland; Portugal; Scotland; South
    Korea; Taiwan; Thailand; Trinadad&Tobago; Vietnam; Yugoslavia"""
)
_EDUCATION = _words(
    """Children; Less than 1st grade; 1st 2nd 3rd or 4th grade; 5th or 6th grade; 7th and 8th grade;
    9th grade; 10th grade; 11th grade; 12th grade no diploma; High school graduate; Some college but
    no degree; Associates degree-occup /vocational; Associates degree-academic program; Bachelors
    degree(BA AB BS); Masters degree(MA MS MEng MEd MSW MBA); Prof school degree (MD DDS DVM LLB
    JD); Doctorate degree(PhD EdD)"""
)
_INDUSTRY = _words(
    """Not in universe or children; Agriculture; Armed Forces; Business and repair services;
    Communications; Construction; Education; Entertainment; Finance insurance and real estate;
    Forestry and fisheries; Hospital services; Manufacturing-durable goods; Manufacturing-nondurable
    goods; Medical except hospital; Mining; Other professional services; Personal services except
    private HH; Private household services; Public administration; Retail trade; Social services;
    Transportation; Utilities and sanitary services; Wholesale trade"""
)
_OCCUPATION = _words(
    """Not in universe; Adm support including clerical; Armed Forces; Executive admin and managerial;
    Farming forestry and fishing; Handlers equip cleaners etc; Machine operators assmblrs &
    inspctrs; Other service; Precision production craft & repair; Private household services;
    Professional specialty; Protective services; Sales; Technicians and related support;
    Transportation and material moving"""
)
_STATE = _words(
    """Not in universe; ?; Abroad; Alabama; Alaska; Arizona; Arkansas; California; Colorado;
    Connecticut; Delaware; District of Columbia; Florida; Georgia; Idaho; Illinois; Indiana; Iowa;
    Kansas; Kentucky; Louisiana; Maine; Maryland; Massachusetts; Michigan; Minnesota; Mississippi;
    Missouri; Montana; Nebraska; Nevada; New Hampshire; New Jersey; New Mexico; New York; North
    Carolina; North Dakota; Ohio; Oklahoma; Oregon; Pennsylvania; South Carolina; South Dakota;
    Tennessee; Texas; Utah; Vermont; Virginia; West Virginia; Wisconsin; Wyoming"""
)
_FAMILY = _words(
    """Householder; Nonfamily householder; Spouse of householder; Secondary individual; In group
    quarters; Child <18 never marr not in subfamily; Child <18 never marr RP of subfamily; Child <18
    ever marr not in subfamily; Child <18 ever marr RP of subfamily; Child <18 spouse of subfamily
    RP; Child 18+ never marr Not in a subfamily; Child 18+ never marr RP of subfamily; Child 18+
    ever marr Not in a subfamily; Child 18+ ever marr RP of subfamily; Child 18+ spouse of subfamily
    RP; Child under 18 of RP of unrel subfamily; Grandchild <18 never marr child of subfamily RP;
    Grandchild <18 never marr not in subfamily; Grandchild <18 never marr RP of subfamily;
    Grandchild <18 ever marr not in subfamily; Grandchild 18+ never marr not in subfamily;
    Grandchild 18+ never marr RP of subfamily; Grandchild 18+ ever marr not in subfamily; Grandchild
    18+ ever marr RP of subfamily; Grandchild 18+ spouse of subfamily RP; Other Rel <18 never marr
    child of subfamily RP; Other Rel <18 never marr not in subfamily; Other Rel <18 never married RP
    of subfamily; Other Rel <18 ever marr not in subfamily; Other Rel <18 ever marr RP of subfamily;
    Other Rel <18 spouse of subfamily RP; Other Rel 18+ never marr not in subfamily; Other Rel 18+
    never marr RP of subfamily; Other Rel 18+ ever marr not in subfamily; Other Rel 18+ ever marr RP
    of subfamily; Other Rel 18+ spouse of subfamily RP; RP of unrelated subfamily; Spouse of RP of
    unrelated subfamily"""
)
_HOUSEHOLD = _words(
    """Householder; Spouse of householder; Child under 18 never married; Child under 18 ever married;
    Child 18 or older; Other relative of householder; Nonrelative of householder; Group Quarters-
    Secondary individual"""
)
_SCHEDULE = _words(
    """Children or Armed Forces; Full-time schedules; Not in labor force; PT for econ reasons usually
    FT; PT for econ reasons usually PT; PT for non-econ reasons usually FT; Unemployed full-time;
    Unemployed part- time"""
)
_MOVED_MSA = _words(
    """Not in universe; ?; Nonmover; MSA to MSA; MSA to nonMSA; NonMSA to MSA; NonMSA to nonMSA; Abroad
    to MSA; Abroad to nonMSA; Not identifiable"""
)
_MOVED_REGION = _words(
    """Not in universe; ?; Nonmover; Same county; Different county same state; Different state same
    division; Different division same region; Different region; Abroad"""
)
_MOVED_WITHIN = _words(
    """Not in universe; ?; Nonmover; Same county; Different county same state; Different state in
    Midwest; Different state in Northeast; Different state in South; Different state in West; Abroad"""
)
_CITIZENSHIP = _words(
    """Native- Born in the United States; Native- Born in Puerto Rico or U S Outlying; Native- Born
    abroad of American Parent(s); Foreign born- U S citizen by naturalization; Foreign born- Not a
    citizen of U S"""
)

SCHEMA: Mapping[str, Column] = {
    "age": Number(low=0, high=90),
    "class of worker": _words(
        """Not in universe; Federal government; Local government; State government; Private; Never
        worked; Self-employed-incorporated; Self-employed-not incorporated; Without pay"""
    ),
    "detailed industry recode": _codes(52),
    "detailed occupation recode": _codes(47),
    "education": _EDUCATION,
    "wage per hour": Number(low=0, high=9999, log=True),
    "enroll in edu inst last wk": _words("Not in universe; High school; College or university"),
    "marital stat": _words(
        """Never married; Married-civilian spouse present; Married-A F spouse present; Married-spouse
        absent; Separated; Divorced; Widowed"""
    ),
    "major industry code": _INDUSTRY,
    "major occupation code": _OCCUPATION,
    "race": _words("White; Black; Asian or Pacific Islander; Amer Indian Aleut or Eskimo; Other"),
    "hispanic origin": _words(
        """All other; Mexican-American; Mexican (Mexicano); Chicano; Puerto Rican; Cuban; Central or
        South American; Other Spanish; NA; Do not know"""
    ),
    "sex": _words("Female; Male"),
    "member of a labor union": _words(_YES_OR_NO),
    "reason for unemployment": _words(
        "Not in universe; Job leaver; Job loser - on layoff; Other job loser; New entrant; Re-entrant"
    ),
    "full or part time employment stat": _SCHEDULE,
    "capital gains": _DOLLARS,
    "capital losses": _DOLLARS,
    "dividends from stocks": _DOLLARS,
    "tax filer stat": _words(
        """Nonfiler; Single; Head of household; Joint both under 65; Joint one under 65 & one 65+;
        Joint both 65+"""
    ),
    "region of previous residence": _words("Not in universe; Northeast; Midwest; South; West; Abroad"),
    "state of previous residence": _STATE,
    "detailed household and family stat": _FAMILY,
    "detailed household summary in household": _HOUSEHOLD,
    "migration code-change in msa": _MOVED_MSA,
    "migration code-change in reg": _MOVED_REGION,
    "migration code-move within reg": _MOVED_WITHIN,
    "live in this house 1 year ago": _words("Not in universe under 1 year old; No; Yes"),
    "migration prev res in sunbelt": _words(f"?; {_YES_OR_NO}"),
    "num persons worked for employer": Number(low=0, high=6),
    "family members under 18": _words(
        """Not in universe; Both parents present; Father only present; Mother only present; Neither
        parent present"""
    ),
    "country of birth father": _COUNTRY,
    "country of birth mother": _COUNTRY,
    "country of birth self": _COUNTRY,
    "citizenship": _CITIZENSHIP,
    "own business or self employed": _codes(3),
    "fill inc questionnaire for veteran's admin": _words(_YES_OR_NO),
    "veterans benefits": _codes(3),
    "weeks worked in year": Number(low=0, high=52),
    "year": _words("94; 95"),
}
"""The encoded columns in their order in the files, the ignored one apart."""

COLUMNS = (
    *list(SCHEMA)[:24],
    "instance weight",
    *list(SCHEMA)[24:],
    "income",
)
"""All columns in their order in the files."""
