"""Closed lists of FOCUS: national currencies, and which subcategory belongs to which category.

Sources: ISO 4217 without metals, funds and test codes; FOCUS by the FinOps Foundation (CC-BY-4.0).
"""

from __future__ import annotations

_NATIONAL = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN "
    "BWP BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD "
    "FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY "
    "KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP "
    "MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR "
    "RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT "
    "TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER "
    "ZAR ZMW ZWG "
)

NATIONAL_CURRENCIES = frozenset(_NATIONAL.split())
"""What BillingCurrency may be: money of a country or currency union, no unit of account."""

_SUBCATEGORIES = {
    "AI and Machine Learning": (
        "AI Platforms",
        "Bots",
        "Generative AI",
        "Machine Learning",
        "Natural Language Processing",
    ),
    "Analytics": (
        "Analytics Platforms",
        "Business Intelligence",
        "Data Processing",
        "Search",
        "Streaming Analytics",
    ),
    "Business Applications": ("Productivity and Collaboration",),
    "Compute": (
        "Containers",
        "End User Computing",
        "Quantum Compute",
        "Serverless Compute",
        "Virtual Machines",
    ),
    "Databases": (
        "Caching",
        "Data Warehouses",
        "Ledger Databases",
        "NoSQL Databases",
        "Relational Databases",
        "Time Series Databases",
    ),
    "Developer Tools": (
        "Continuous Integration and Deployment",
        "Developer Platforms",
        "Development Environments",
        "Quality Assurance",
        "Source Code Management",
    ),
    "Identity": ("Identity and Access Management",),
    "Integration": (
        "API Management",
        "Messaging",
        "Workflow Orchestration",
    ),
    "Internet of Things": (
        "IoT Analytics",
        "IoT Platforms",
    ),
    "Management and Governance": (
        "Architecture",
        "Compliance",
        "Cost Management",
        "Data Governance",
        "Disaster Recovery",
        "Endpoint Management",
        "Observability",
        "Support",
    ),
    "Media": (
        "Content Creation",
        "Gaming",
        "Media Streaming",
        "Mixed Reality",
    ),
    "Migration": (
        "Data Migration",
        "Resource Migration",
    ),
    "Mobile": (),
    "Multicloud": ("Multicloud Integration",),
    "Networking": (
        "Application Networking",
        "Content Delivery",
        "Network Connectivity",
        "Network Infrastructure",
        "Network Routing",
        "Network Security",
    ),
    "Other": (),
    "Security": (
        "Secret Management",
        "Security Posture Management",
        "Threat Detection and Response",
    ),
    "Storage": (
        "Backup Storage",
        "Block Storage",
        "File Storage",
        "Object Storage",
        "Storage Platforms",
    ),
    "Web": ("Application Platforms",),
}

CATEGORY_OF = {
    subcategory: category
    for category, own in _SUBCATEGORIES.items()
    for subcategory in (*own, f"Other ({category})")
}
"""By subcategory: its category."""
